package dataplane_test

import (
	"os"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"

	"proffer/dataplane"
	"proffer/proof/rig"
)

// TestRunTime: the run time of a program of this process is in the sum, once, however
// often it is open, and only its run time while the kernel counted.
func TestRunTime(t *testing.T) {
	rig.NeedRoot(t)
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
	ran := func() dataplane.Ran {
		t.Helper()
		sum, err := dataplane.RunTime(os.Getpid())
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
	stop, err := dataplane.CountRunTime()
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
	if _, err := dataplane.RunTime(1 << 30); err == nil {
		t.Error("a process that is not there has run programs")
	}
}
