package lines_test

import (
	"encoding/binary"
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"

	"proffer/dataplane/objects"
	"proffer/proof/machine"
)

// code is functions of a compiled program, to be run here one step at a time by CPUs
// that share one table of lines: so a test chooses the next CPU, which it cannot on
// real ones. They share nothing else, and each step ends before the next look at it.
// What one has written all see at once, as on x86; where loads may overtake each
// other this proves less.
type code struct {
	*machine.Code
	consts []byte // .rodata
}

// The address space: the upper half of an address is the object, the lower half the offset.
const (
	atStack = (iota + 1) << 32
	atLines
	atConsts
	atVars // .bss: virtual_now_ns
	theMap // flows, as an argument of bpf_map_lookup_elem
	noMap  // counters
)

const (
	fewLines   = 4
	calls      = 5   // deep
	argBytes   = 64  // what a pointer among the arguments points to
	frameBytes = 128 // of stack, a call
)

// shared is the memory of all CPUs.
type shared struct {
	lines [(fewLines + 1) * objects.LineBytes]byte // and the hints behind them
	now   uint64
}

// cpu is one of them: a value, so that a copy is all of its state.
type cpu struct {
	machine.CPU
	stack [argBytes + calls*frameBytes]byte
}

// codeOf takes programs apart, with the constants that have been set.
func codeOf(spec *ebpf.CollectionSpec, programs ...string) *code {
	c := &code{consts: constsOf(spec)}
	var specs []*ebpf.ProgramSpec
	for _, program := range programs {
		specs = append(specs, spec.Programs[program])
	}
	c.Code = machine.New(specs, frameBytes, func(ins asm.Instruction) uint64 {
		switch ins.Reference() {
		case objects.LBMapFlows:
			return theMap
		case objects.LBMapCounters:
			return noMap
		case ".rodata":
			return atConsts + uint64(ins.Constant)>>32
		case ".bss":
			return atVars + uint64(ins.Constant)>>32
		}
		return 0
	})
	return c
}

// constsOf are a program's constants, with those that have been set.
func constsOf(spec *ebpf.CollectionSpec) (consts []byte) {
	for _, v := range spec.Variables {
		if v.SectionName == ".rodata" {
			end := int(v.Offset) + len(v.Value)
			consts = append(consts, make([]byte, max(0, end-len(consts)))...)
			copy(consts[v.Offset:], v.Value)
		}
	}
	return consts
}

// call begins a function; its pointers are to the top of the stack.
func (c *code) call(function string, args ...uint64) cpu {
	return cpu{CPU: c.Call(function, atStack+argBytes, args...)}
}

// hints are those of a line's slots.
func (s *shared) hints(line uint32) []byte {
	return s.lines[fewLines*objects.LineBytes:][line*uint32(objects.LineEntries):][:objects.LineEntries]
}

// step runs p up to its next look at the lines, from one if it stands before it.
// False: it has returned.
func (c *code) step(p *cpu, s *shared) bool {
	w := &seen{c, p, s}
	for first := true; ; first = false {
		ins := c.Next(&p.CPU)
		if !first && ins.Touches(&p.CPU, atLines, atConsts) {
			return true
		}
		if ins.Exits() { // so that equal states look equal
			clear(p.stack[argBytes+p.Depth*frameBytes:][:frameBytes])
		}
		if !c.Step(&p.CPU, w) {
			return false
		}
	}
}

// seen is the world as one CPU sees it.
type seen struct {
	*code
	*cpu
	*shared
}

// Help is bpf_map_lookup_elem of a line, or of the counters, which are not there; they call no
// other helper.
func (w *seen) Help(_ *machine.Code, helper asm.BuiltinFunc, p *machine.CPU) {
	if helper == asm.FnMapLookupElem && p.Reg[1] == noMap {
		clear(p.Reg[:6])
		return
	}
	if helper != asm.FnMapLookupElem || p.Reg[1] != theMap {
		panic(fmt.Sprintf("%v: not known here", helper))
	}
	key := binary.LittleEndian.Uint32(w.stack[p.Reg[2]-atStack:])
	clear(p.Reg[:6])
	if key <= fewLines {
		p.Reg[0] = atLines + uint64(key)*uint64(objects.LineBytes)
	}
}

func (w *seen) Memory(addr uint64, size int) []byte {
	offset := addr & 0xffffffff
	switch addr - offset {
	case atStack:
		return w.stack[offset:][:size]
	case atLines:
		return w.lines[offset:][:size]
	case atConsts:
		return w.consts[offset:][:size]
	case atVars:
		return binary.LittleEndian.AppendUint64(nil, w.now)[offset:][:size]
	}
	panic(fmt.Sprintf("address %x", addr))
}
