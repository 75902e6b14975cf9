package lines_test

import (
	"slices"
	"unsafe"

	"github.com/cilium/ebpf/asm"

	"proffer/dataplane/objects"
	"proffer/proof/machine"
)

// treeWorld is the world as one CPU sees it.
type treeWorld struct {
	*treeTrack
	*treeCPU
	tally *tallyParts
}

// Help is bpf_map_lookup_elem of the tally, or of a map that has nothing.
func (w *treeWorld) Help(_ *machine.Code, helper asm.BuiltinFunc, p *machine.CPU) {
	found := helper == asm.FnMapLookupElem && p.Reg[1] == theTally
	clear(p.Reg[:6])
	if found {
		p.Reg[0] = atTally
	}
}

func (w *treeWorld) Memory(addr uint64, size int) []byte {
	offset := int(addr & 0xffffffff)
	switch addr >> 32 << 32 {
	case tallyOwn:
		if offset < len(w.stack) {
			return w.stack[offset:][:size]
		}
		return w.consts[offset-len(w.stack):][:size]
	case otherMap:
		return make([]byte, size)
	}
	return w.part(offset, size)
}

// late does a plain load or store of the tree as the CPU sees it, whose own stores may be unseen by others.
// False: the machine does it, after all of them if it is atomic and returns what was there.
func (w *treeWorld) late(ins *machine.Instruction, at uint64) bool {
	class := ins.OpCode.Class()
	switch {
	case class != asm.LdXClass && ins.OpCode.Mode() != asm.MemMode:
		for ins.OpCode.AtomicOp() != asm.AddAtomic && w.show() { // which is one that returns nothing
		}
		return false
	case !inTree(at):
		return false
	case class == asm.LdXClass:
		own, ok := w.own(at)
		if !ok {
			return false
		}
		w.Reg[ins.Dst] = own
	default:
		i := slices.IndexFunc(w.stored[:], func(s treeStore) bool { return s.at == 0 })
		w.stored[i] = treeStore{at, w.Reg[ins.Src]}
	}
	w.PC++
	return true
}

// own is the value that the CPU stored last at an address, if others do not see it yet.
func (w *treeWorld) own(at uint64) (value uint64, ok bool) {
	for _, s := range w.stored {
		if s.at == at {
			value, ok = s.value, true
		}
	}
	return value, ok
}

// touched is the address in the tally that an instruction reads or writes, or 0.
func (w *treeWorld) touched(ins *machine.Instruction) uint64 {
	if !ins.Touches(&w.CPU, atTally, theTally) {
		return 0
	}
	reg := ins.Dst
	if ins.OpCode.Class() == asm.LdXClass {
		reg = ins.Src
	}
	return w.Reg[reg] + uint64(ins.Offset)
}

// inTree: at the address is a top, a node or a leaf.
func inTree(at uint64) bool {
	var t objects.LBTally
	return at >= atTally+uint64(unsafe.Offsetof(t.Top)) && at < atTally+uint64(unsafe.Offsetof(t.Seat))
}

// shared: what is at the address changes in the race.
func (k *treeTrack) shared(at uint64) bool {
	var t objects.LBTally
	if at == atTally+uint64(unsafe.Offsetof(t.Node)) {
		return true
	}
	if k.seats == manySeats && at == atTally+uint64(unsafe.Offsetof(t.Top)) {
		return true
	}
	for _, deeds := range k.do {
		for _, d := range deeds {
			seat := atTally + uint64(unsafe.Offsetof(t.Seat)) + d.seat*uint64(unsafe.Sizeof(t.Seat[0]))
			if at == atTally+uint64(unsafe.Offsetof(t.Leaf))+8*d.seat || at == seat ||
				d.what == halves && at == seat+uint64(unsafe.Offsetof(t.Seat[0].Inverse)) {
				return true
			}
		}
	}
	return false
}

// show lets the others see the CPU's first store that they have not seen.
func (w *treeWorld) show() bool {
	first := w.stored[0]
	if first.at == 0 {
		return false
	}
	machine.Write(w.Memory(first.at, 8), first.value)
	copy(w.stored[:], w.stored[1:])
	w.stored[maxStored-1] = treeStore{}
	return true
}

// part is a part of the tally; a leaf of which there is no seat is never chosen.
func (w *treeWorld) part(offset, size int) []byte {
	var t objects.LBTally
	switch node, leaf, seat := int(unsafe.Offsetof(t.Node)), int(unsafe.Offsetof(t.Leaf)), int(unsafe.Offsetof(t.Seat)); {
	case offset < len(w.tally.head):
		return w.tally.head[offset:][:size]
	case offset >= seat:
		each := int(unsafe.Sizeof(t.Seat[0]))
		return w.tally.seat[(offset-seat)/each][(offset-seat)%each:][:size]
	case offset >= leaf && (offset-leaf)/8 < treeSeats:
		return w.tally.leaf[(offset-leaf)/8][:size]
	case offset == node:
		return w.tally.node[:size]
	case offset == len(w.tally.head):
		return w.tally.top[:size]
	}
	never := make([]byte, 8)
	machine.Write(never, 1<<63-1)
	return never[:size]
}
