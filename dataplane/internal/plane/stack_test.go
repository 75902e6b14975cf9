package plane_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"

	"proffer/dataplane/objects"
)

// TestStack: no chain of calls has more stack than Linux 6.1 gives it, which rounds every
// function's up to 32 bytes; the kernels of today, to 16. The bench's outer program is one call
// more. The code counts that only a 6.1 runs, too: the verifier of this kernel does not see it.
func TestStack(t *testing.T) {
	bench := chainsOf(t, objects.LoadBench)
	outer := max(bench[objects.BenchProgAround].frames[0], bench[objects.BenchProgAroundOut].frames[0])
	for _, load := range []func() (*ebpf.CollectionSpec, error){objects.LoadAgent, objects.LoadLB, objects.LoadEdge, objects.LoadNF} {
		for _, c := range chainsOf(t, load) {
			const most = 512
			t.Logf("%d bytes: %s", outer+c.stack(), c)
			if outer+c.stack() > most {
				t.Errorf("%d bytes of stack, more than %d: %d of the bench, %s", outer+c.stack(), most, outer, c)
			}
		}
	}
}

// chain is the calls that have the most stack together.
type chain struct {
	functions []string
	frames    []int
}

func (c chain) stack() (sum int) {
	for _, f := range c.frames {
		sum += f
	}
	return sum
}

func (c chain) String() string {
	all := []string{}
	for i, f := range c.functions {
		all = append(all, fmt.Sprintf("%s %d", f, c.frames[i]))
	}
	return strings.Join(all, ", ")
}

// chainsOf finds the largest chain of each program.
func chainsOf(t *testing.T, load func() (*ebpf.CollectionSpec, error)) map[string]chain {
	t.Helper()
	spec, err := load()
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]chain{}
	for name, p := range spec.Programs {
		all[name] = largest(functionsOf(p.Instructions), p.Instructions.Name())
	}
	return all
}

// function is all that a chain's stack depends on.
type function struct {
	lowest int64 // address, from the frame's pointer
	calls  map[string]bool
}

// largest finds the chain from a function on.
func largest(functions map[string]*function, name string) chain {
	f := functions[name]
	var most chain
	for _, callee := range slices.Sorted(maps.Keys(f.calls)) {
		if c := largest(functions, callee); c.stack() > most.stack() {
			most = c
		}
	}
	const unit = 32
	frame := (max(int(-f.lowest), 1) + unit - 1) / unit * unit
	return chain{append([]string{name}, most.functions...), append([]int{frame}, most.frames...)}
}

// functionsOf reads a program's functions. The compiler makes each pointer into a frame as a copy of
// the frame's, to which it adds a number.
func functionsOf(instructions asm.Instructions) map[string]*function {
	all := map[string]*function{}
	var f *function
	var at map[asm.Register]int64
	for _, in := range instructions {
		if name := in.Symbol(); name != "" {
			f = &function{calls: map[string]bool{}}
			all[name] = f
			at = map[asm.Register]int64{asm.RFP: 0}
		}
		if in.IsFunctionCall() || in.IsFunctionReference() {
			f.calls[in.Reference()] = true
		}
		follow(at, in)
		for _, offset := range at {
			f.lowest = min(f.lowest, offset)
		}
		for _, r := range accessed(in) {
			if base, ok := at[r]; ok {
				f.lowest = min(f.lowest, base+int64(in.Offset))
			}
		}
	}
	return all
}

// follow updates `at`, the registers that point into the frame and where, by an instruction.
func follow(at map[asm.Register]int64, in asm.Instruction) {
	op := in.OpCode
	base, into := at[in.Src]
	switch {
	case in.IsFunctionCall() || in.IsBuiltinCall() || in.IsKfuncCall():
		for r := asm.R0; r <= asm.R5; r++ {
			delete(at, r)
		}
	case op == asm.Mov.Op(asm.RegSource) && into:
		at[in.Dst] = base
	case op == asm.Add.Op(asm.ImmSource):
		if _, ok := at[in.Dst]; ok {
			at[in.Dst] += in.Constant
		}
	case op.Class().IsALU() || op.Class().IsLoad():
		delete(at, in.Dst)
	}
}

// accessed is the registers by which an instruction reads or writes memory.
func accessed(in asm.Instruction) []asm.Register {
	switch class := in.OpCode.Class(); {
	case class.IsStore():
		return []asm.Register{in.Dst}
	case class.IsLoad():
		return []asm.Register{in.Src}
	}
	return nil
}
