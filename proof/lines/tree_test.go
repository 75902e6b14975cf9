package lines_test

import (
	"encoding/binary"
	"hash/maphash"
	"os"
	"slices"
	"testing"
	"unsafe"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"

	"proffer/dataplane/objects"
	"proffer/policy"
	"proffer/proof/machine"
)

// A tally in a race: its head, a node with its leaves, and the first seats. No CPU touches the rest.
const (
	treeSeats = 4
	atTally   = 7 << 32
	theTally  = 8 << 32                               // the map
	tallyOwn  = atConns                               // of conns_test.go: constants, variables and the stack of a CPU
	inSeat    = 1<<63 | 1<<53 | 1<<47 | 1<<46 | 1<<14 // a word: an embryonic flow in a seat of tally 1
)

// tallyParts are what a race looks at of a tally.
type tallyParts struct {
	head [unsafe.Offsetof(objects.LBTally{}.Top)]byte
	node [8]byte
	leaf [treeSeats][8]byte
	seat [treeSeats][unsafe.Sizeof(objects.LBSeat{})]byte
}

// treeMoment is a race between two steps.
type treeMoment struct {
	tallyParts
	cpus [3]treeCPU
}

type treeCPU struct {
	machine.CPU
	stack [calls * frameBytes]byte
	begun int // flows
	busy  bool
}

// treeTrack is where a race is run: each CPU begins flows in seats, one after the other.
type treeTrack struct {
	*testing.T
	*machine.Code
	consts []byte
	do     [3][]int
	seed   maphash.Seed
	known  map[uint64]bool
	turns  []byte
}

// treeRace is the seats in which each CPU begins flows.
type treeRace struct {
	what string
	do   [3][]int
}

// TestTree: flows that begin at several CPUs at once, however their steps mingle, leave each leaf
// the score of its seat, and the node the least of the leaves. With one try of a swap in place of two
// some do not.
func TestTree(t *testing.T) {
	spec, err := objects.LoadLB()
	if err != nil {
		t.Fatal(err)
	}
	code := machine.New([]*ebpf.ProgramSpec{spec.Programs["lb_kept"]}, frameBytes, func(ins asm.Instruction) uint64 {
		switch ins.Reference() {
		case objects.LBMapTallies:
			return theTally
		case ".rodata":
			return tallyOwn + calls*frameBytes + uint64(ins.Constant)>>32
		}
		return otherMap
	})
	races := []treeRace{
		{"two seats", [3][]int{{0}, {1}}},
		{"one seat", [3][]int{{0}, {0}}},
		{"one after another", [3][]int{{0, 1}, {1, 2}}},
		{"one after another in turn", [3][]int{{0, 1}, {1, 0}}},
	}
	if os.Getenv("PROFFER_CPUS") == "3" { // half a minute
		races = append(races, treeRace{"three CPUs", [3][]int{{0}, {1}, {2}}}, treeRace{"three CPUs, two of one seat", [3][]int{{0}, {1}, {1}}})
	}
	for _, r := range races {
		t.Run(r.what, func(t *testing.T) {
			k := &treeTrack{T: t, Code: code, consts: constsOf(spec), do: r.do, seed: maphash.MakeSeed(), known: map[uint64]bool{}}
			k.walk(k.start())
			t.Logf("%d moments", len(k.known))
		})
	}
}

// start is a tally of alike servers without flows, of which seat 1 is the next.
func (k *treeTrack) start() *treeMoment {
	m := &treeMoment{}
	head := objects.LBTally{Seats: 17, Turn: 10, Counting: uint32(0), Ranked: 1} // the levels of more than 16 seats
	b, err := binary.Append(nil, binary.LittleEndian, head)
	if err != nil {
		k.Fatal(err)
	}
	copy(m.head[:], b)
	for i := range m.seat {
		b, err := binary.Append(nil, binary.LittleEndian, objects.LBSeat{Inverse: policy.InverseOne, Server: uint32(i)})
		if err != nil {
			k.Fatal(err)
		}
		copy(m.seat[i][:], b)
		machine.Write(m.leaf[i][:], policy.Score(0, policy.InverseOne)<<26|uint64((i+treeSeats-1)%treeSeats)<<10|uint64(i))
	}
	m.node = m.leaf[1]
	return m
}

// next lets a CPU go on, to its next look at the tally; false: it has done all.
func (k *treeTrack) next(m *treeMoment, i int) bool {
	p := &m.cpus[i]
	if !p.busy {
		if p.begun == len(k.do[i]) {
			return false
		}
		seat := uint64(k.do[i][p.begun])
		*p = treeCPU{begun: p.begun + 1, busy: true}
		p.CPU = k.Call("note_begun", tallyOwn, seat<<32|inSeat)
	}
	w := &treeWorld{k, p, &m.tallyParts}
	for first := true; ; first = false {
		ins := k.Next(&p.CPU)
		if !first && ins.Touches(&p.CPU, atTally, theTally) {
			return true
		}
		if !k.Step(&p.CPU, w) {
			*p = treeCPU{begun: p.begun}
			return true
		}
	}
}

// walk goes through all that can come of a moment: each CPU may be the next one.
func (k *treeTrack) walk(m *treeMoment) {
	key := maphash.Comparable(k.seed, *m)
	if k.known[key] || k.Failed() {
		return
	}
	k.known[key] = true
	over := true
	for i := range m.cpus {
		then := *m
		if k.next(&then, i) {
			over = false
			k.turns = append(k.turns, byte(i))
			k.walk(&then)
			k.turns = k.turns[:len(k.turns)-1]
		}
	}
	if over {
		k.judge(m)
	}
}

func (k *treeTrack) judge(m *treeMoment) {
	least := ^uint64(0)
	for i := range m.leaf {
		flows := uint64(0)
		for _, seats := range k.do {
			for _, seat := range seats {
				if seat == i {
					flows++
				}
			}
		}
		leaf := machine.Read(m.leaf[i][:])
		if want := policy.Score(flows, policy.InverseOne); leaf>>26 != want {
			k.Errorf("%v: leaf %d has score %d, want %d of %d flows", slices.Clone(k.turns), i, leaf>>26, want, flows)
		}
		least = min(least, leaf)
	}
	if node := machine.Read(m.node[:]); node != least {
		k.Errorf("%v: the node is %x, want %x", slices.Clone(k.turns), node, least)
	}
}

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
	}
	never := make([]byte, 8)
	machine.Write(never, 1<<63-1)
	return never[:size]
}
