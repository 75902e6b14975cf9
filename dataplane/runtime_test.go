package dataplane

import (
	"os"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
)

// TestRunTime: what a program of this process ran is in the sum, once, however
// often it is open, and only what it ran while somebody counted.
func TestRunTime(t *testing.T) {
	needRoot(t)
	program, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Type: ebpf.XDP, License: "GPL",
		Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, 2), asm.Return()},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer program.Close()
	again, err := program.Clone()
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	ran := func() Ran {
		t.Helper()
		sum, err := RunTime(os.Getpid())
		if err != nil {
			t.Fatal(err)
		}
		return sum
	}
	run := func() {
		t.Helper()
		if _, err := program.Run(&ebpf.RunOptions{Data: make([]byte, 64), Repeat: 1000}); err != nil {
			t.Fatal(err)
		}
	}
	before := ran()
	stop, err := CountRunTime()
	if err != nil {
		t.Fatal(err)
	}
	run()
	counted := ran()
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	if counted.Runs != before.Runs+1000 || counted.Time <= before.Time {
		t.Errorf("%+v, then %+v: want 1000 runs more, and their time", before, counted)
	}
	if _, err := RunTime(1 << 30); err == nil {
		t.Error("a process that is not there has run programs")
	}
}

func TestProgramOf(t *testing.T) {
	id, ran, ok := programOf("pos:\t0\nprog_type:\t6\nprog_tag:\tdeadbeef\nprog_id:\t42\nrun_time_ns:\t1500\nrun_cnt:\t3\n")
	if !ok || id != 42 || ran != (Ran{Runs: 3, Time: 1500}) {
		t.Errorf("%d, %+v, %v", id, ran, ok)
	}
	for _, other := range []string{"", "pos:\t0\nmap_type:\t1\n", "link_type:\txdp\nprog_id:\t42\n"} {
		if id, ran, ok := programOf(other); ok {
			t.Errorf("%q is program %d, %+v", other, id, ran)
		}
	}
}
