package lines_test

import (
	"encoding/binary"
	"os"
	"testing"
	"unsafe"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"

	"proffer/dataplane/objects"
	"proffer/policy"
	"proffer/proof/machine"
)

// A tally in a race: its head, the first top and node with its leaves, and the first seats. No CPU
// touches the rest.
const (
	treeSeats = 4
	atTally   = 7 << 32
	theTally  = 8 << 32                       // the map
	tallyOwn  = atConns                       // of conns_test.go: constants, variables and the stack of a CPU
	inSeat    = 1<<63 | 1<<53 | 1<<47 | 1<<14 // a word of tally 1
	fewSeats  = 17                            // leaves and nodes
	manySeats = 129                           // and tops
)

// tallyParts are what a race looks at of a tally.
type tallyParts struct {
	head [unsafe.Offsetof(objects.LBTally{}.Top)]byte
	top  [8]byte
	node [8]byte
	leaf [treeSeats][8]byte
	seat [treeSeats][unsafe.Sizeof(objects.LBSeat{})]byte
}

// treeMoment is a race between two steps.
type treeMoment struct {
	tallyParts
	cpus [3]treeCPU
}

// treeCPU runs functions. What it stores in the tree without an atomic instruction waits in the order in
// which it was stored: other CPUs see it later.
type treeCPU struct {
	machine.CPU
	stack  [treeCalls * treeFrame]byte
	begun  int // deeds
	busy   bool
	stored [maxStored]treeStore
}

const (
	treeCalls = 3   // deep
	treeFrame = 192 // of stack, a call
	maxStored = 3
)

// treeStore is a value for a place in the tree; none: at is 0.
type treeStore struct{ at, value uint64 }

// treeTrack is where a race is run: each CPU does deeds, in turn.
type treeTrack struct {
	walker
	*machine.Code
	treeRace
	consts []byte
}

// treeRace is what each CPU does, in a tally of so many seats.
type treeRace struct {
	what  string
	seats uint32
	do    [3][]treeDeed
}

// treeDeed is done in a seat: a flow begins or ends, or user space has halved the weight.
type treeDeed struct {
	what treeKind
	seat uint64
}

type treeKind byte

const (
	begins treeKind = iota
	ends
	halves
)

// TestTree: flows that begin and end at several CPUs at once, and weights that change, leave each leaf
// the score of its seat, and the values above it the least of those below: however the CPUs' steps
// mingle, and however late a CPU's stores are seen by others.
func TestTree(t *testing.T) {
	spec, err := objects.LoadLB()
	if err != nil {
		t.Fatal(err)
	}
	code := machine.New([]*ebpf.ProgramSpec{spec.Programs["lb_kept"]}, treeFrame, func(ins asm.Instruction) uint64 {
		switch ins.Reference() {
		case objects.LBMapTallies:
			return theTally
		case ".rodata":
			return tallyOwn + treeCalls*treeFrame + uint64(ins.Constant)>>32
		}
		return otherMap
	})
	begin := func(seat uint64) treeDeed { return treeDeed{begins, seat} }
	end := func(seat uint64) treeDeed { return treeDeed{ends, seat} }
	halve := func(seat uint64) treeDeed { return treeDeed{halves, seat} }
	race := func(what string, seats uint32, do ...[]treeDeed) treeRace {
		r := treeRace{what: what, seats: seats}
		copy(r.do[:], do)
		return r
	}
	races := []treeRace{
		race("two seats", fewSeats, []treeDeed{begin(0)}, []treeDeed{begin(1)}),
		race("one seat", fewSeats, []treeDeed{begin(0)}, []treeDeed{begin(0)}),
		race("the least, and another", fewSeats, []treeDeed{begin(1)}, []treeDeed{end(2)}),
		race("an end and a begin of one", fewSeats, []treeDeed{begin(2)}, []treeDeed{end(2)}),
		race("two ends", fewSeats, []treeDeed{end(0)}, []treeDeed{end(3)}),
		race("a begin, and a weight", fewSeats, []treeDeed{begin(1)}, []treeDeed{halve(1)}),
		race("an end, and another's weight", fewSeats, []treeDeed{end(2)}, []treeDeed{halve(1)}),
		race("three levels", manySeats, []treeDeed{begin(1)}, []treeDeed{end(2)}),
	}
	if os.Getenv("PROFFER_CPUS") == "3" { // minutes
		races = append(races,
			race("one after another", fewSeats, []treeDeed{begin(0), begin(1)}, []treeDeed{end(1)}),
			race("one seat again", fewSeats, []treeDeed{begin(1), end(1)}, []treeDeed{begin(1)}),
			race("three CPUs", fewSeats, []treeDeed{begin(0)}, []treeDeed{begin(1)}, []treeDeed{end(2)}))
	}
	for _, r := range races {
		t.Run(r.what, func(t *testing.T) {
			k := &treeTrack{walker: newWalker(t), Code: code, treeRace: r, consts: constsOf(spec)}
			k.walk(k.start())
			t.Logf("%d moments", len(k.known))
		})
	}
}

// start is a tally of alike servers with a flow each, of which seat 1 is the next.
func (k *treeTrack) start() *treeMoment {
	m := &treeMoment{}
	head := objects.LBTally{Seats: k.seats, Turn: 10, Ranked: 1}
	b, err := binary.Append(nil, binary.LittleEndian, head)
	if err != nil {
		k.Fatal(err)
	}
	copy(m.head[:], b)
	for i := range m.seat {
		b, err := binary.Append(nil, binary.LittleEndian, objects.LBSeat{Count: [2]uint64{1 << 32}, Inverse: policy.InverseOne, Server: uint32(i)})
		if err != nil {
			k.Fatal(err)
		}
		copy(m.seat[i][:], b)
		machine.Write(m.leaf[i][:], policy.Score(1, policy.InverseOne)<<26|uint64((i+treeSeats-1)%treeSeats)<<10|uint64(i))
	}
	m.node = m.leaf[1]
	m.top = m.node
	return m
}

// begin calls the function of a deed.
func (k *treeTrack) begin(m *treeMoment, d treeDeed) machine.CPU {
	word := d.seat<<32 | inSeat
	switch d.what {
	case begins:
		return k.Call("move_seat", tallyOwn, word, 1)
	case ends:
		return k.Call("move_seat", tallyOwn, word, ^uint64(1<<32-1)) // -1 << 32
	}
	machine.Write(m.seat[d.seat][unsafe.Offsetof(objects.LBSeat{}.Inverse):][:4], 2*policy.InverseOne)
	return k.Call("renew_until_right", tallyOwn, 1, d.seat)
}

// next lets a CPU go on, to its next look at the tally; false: it has done all.
func (k *treeTrack) next(m *treeMoment, i int) bool {
	p := &m.cpus[i]
	if !p.busy {
		if p.begun == len(k.do[i]) {
			return false
		}
		*p = treeCPU{CPU: k.begin(m, k.do[i][p.begun]), begun: p.begun + 1, busy: true, stored: p.stored}
	}
	w := &treeWorld{k, p, &m.tallyParts}
	for first := true; ; first = false {
		ins := k.Next(&p.CPU)
		at := w.touched(ins)
		if !first && k.shared(at) {
			return true
		}
		if at != 0 && w.late(ins, at) {
			continue
		}
		if ins.Exits() { // what it leaves on its stack makes no difference
			clear(p.stack[p.Depth*treeFrame:][:treeFrame])
		}
		if !k.Step(&p.CPU, w) {
			*p = treeCPU{begun: p.begun, stored: p.stored}
			return true
		}
	}
}

// walk goes through all that can come of a moment: each CPU may be the next, or the first of its
// stores be seen.
func (k *treeTrack) walk(m *treeMoment) {
	walk(&k.walker, m, func(m *treeMoment, try func(byte, func(*treeMoment) bool)) {
		for i := range m.cpus {
			try('0'+byte(i), func(then *treeMoment) bool { return k.next(then, i) })
			try('a'+byte(i), func(then *treeMoment) bool {
				w := &treeWorld{k, &then.cpus[i], &then.tallyParts}
				return w.show()
			})
		}
	}, func(m *treeMoment, over bool) {
		if over {
			k.judge(m)
		}
	})
}

// wanted are the flows of a seat in the end, and its inverse.
func (k *treeTrack) wanted(seat int) (flows uint64, inverse uint32) {
	flows, inverse = 1, policy.InverseOne
	for _, deeds := range k.do {
		for _, d := range deeds {
			switch {
			case d.seat != uint64(seat):
			case d.what == begins:
				flows++
			case d.what == ends:
				flows--
			default:
				inverse = 2 * policy.InverseOne
			}
		}
	}
	return flows, inverse
}

func (k *treeTrack) judge(m *treeMoment) {
	least := ^uint64(0)
	for i := range m.leaf {
		flows, inverse := k.wanted(i)
		leaf := machine.Read(m.leaf[i][:])
		if want := policy.Score(flows, inverse); leaf>>26 != want {
			k.Errorf("%s: leaf %d has score %d, want %d of %d flows", k.turns, i, leaf>>26, want, flows)
		}
		least = min(least, leaf)
	}
	if node := machine.Read(m.node[:]); node != least {
		k.Errorf("%s: the node is %x, want %x", k.turns, node, least)
	}
	if top := machine.Read(m.top[:]); k.seats == manySeats && top != least {
		k.Errorf("%s: the top is %x, want %x", k.turns, top, least)
	}
}
