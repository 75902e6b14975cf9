package agent_test

import (
	"runtime"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/btf"

	"proffer/dataplane/internal/plane"
	"proffer/proof/rig"
)

// slow is a program that takes tens of milliseconds, as a packet may on a CPU that is busy with
// interrupts. Its state is 1 while it runs and 2 afterwards.
type slow struct {
	prog  *ebpf.Program
	state *ebpf.Map
}

func newSlow(t *testing.T) slow {
	t.Helper()
	state, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.Array, KeySize: 4, ValueSize: 4, MaxEntries: 1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { state.Close() })
	const turns = 1 << 23 // bpf_loop takes no more
	number := &btf.Int{Name: "long", Size: 8, Encoding: btf.Signed}
	begin := btf.WithFuncMetadata(asm.StoreImm(asm.RFP, -4, 0, asm.Word), &btf.Func{
		Name: "slow", Linkage: btf.GlobalFunc, Type: &btf.FuncProto{Return: number, Params: []btf.FuncParam{{Name: "ctx", Type: number}}},
	})
	turn := btf.WithFuncMetadata(asm.Mov.Imm(asm.R0, 0).WithSymbol("turn"), &btf.Func{
		Name: "turn", Linkage: btf.StaticFunc, Type: &btf.FuncProto{Return: number, Params: []btf.FuncParam{{Name: "i", Type: number}}},
	})
	prog, err := ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.XDP, License: "GPL", Instructions: asm.Instructions{
		begin,
		asm.LoadMapPtr(asm.R1, state.FD()),
		asm.Mov.Reg(asm.R2, asm.RFP),
		asm.Add.Imm(asm.R2, -4),
		asm.FnMapLookupElem.Call(),
		asm.JEq.Imm(asm.R0, 0, "end"),
		asm.Mov.Reg(asm.R6, asm.R0),
		asm.StoreImm(asm.R6, 0, 1, asm.Word),
		asm.Mov.Imm(asm.R1, turns),
		asm.Instruction{OpCode: asm.LoadImmOp(asm.DWord), Dst: asm.R2, Src: asm.PseudoFunc, Constant: -1}.WithReference("turn"),
		asm.Mov.Imm(asm.R3, 0),
		asm.Mov.Imm(asm.R4, 0),
		asm.FnLoop.Call(),
		asm.StoreImm(asm.R6, 0, 2, asm.Word),
		asm.Mov.Imm(asm.R0, 0).WithSymbol("end"),
		asm.Return(),
		turn,
		asm.Return(),
	}})
	if err != nil {
		t.Fatalf("%+v", err)
	}
	t.Cleanup(func() { prog.Close() })
	return slow{prog, state}
}

func (s slow) now(t *testing.T) (state uint32) {
	t.Helper()
	if err := s.state.Lookup(uint32(0), &state); err != nil {
		t.Fatal(err)
	}
	return state
}

// during calls f while the program runs, and reports whether f returned before the program's
// end.
func (s slow) during(t *testing.T, f func() error) (early bool) {
	t.Helper()
	if err := s.state.Put(uint32(0), uint32(0)); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error)
	go func() {
		_, err := s.prog.Run(&ebpf.RunOptions{Data: make([]byte, 64)})
		ended <- err
	}()
	for s.now(t) == 0 {
		runtime.Gosched()
	}
	err := f()
	early = s.now(t) == 1
	if runErr := <-ended; err != nil || runErr != nil {
		t.Fatal(err, runErr)
	}
	return early
}

// TestRecountWaits: a recount waits twice for the packets in progress: before it moves the
// requests to the other count, and before it sets the old count to 0. Between a request's
// flag and its count a packet may take as long as any.
func TestRecountWaits(t *testing.T) {
	r := rig.NewAgent(t, rig.Hits{}, rig.Offering(rig.HuntPort))
	s := newSlow(t)
	turn := func() error {
		_, err := r.SweepTurn()
		return err
	}
	const rounds = 8 // a program may end before a busy machine comes to the turn
	for range rounds {
		for i := range plane.SweepTurns {
			if waits := i == 0 || i == plane.SweepTurns-1; !waits {
				if err := turn(); err != nil {
					t.Fatal(err)
				}
			} else if s.during(t, turn) {
				t.Errorf("turn %d does not wait for the packets in progress", i)
			}
		}
	}
}
