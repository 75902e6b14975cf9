package lines_test

import (
	"encoding/binary"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"

	"proffer/dataplane/objects"
	"proffer/proof/machine"
	"proffer/proof/rig"
)

// The agent's table in a race: two lines, and no other state.
const (
	connLines     = 2
	connLineBytes = objects.LineSlots * (8 + connBytes)
	connBytes     = 64
	tupleBytes    = 40
	connArgs      = tupleBytes + connBytes + 8
	connFrame     = 192
	connNow       = 1000 * time.Second
)

const (
	atConns = (iota + 1) << 32
	atConnHints
	atOwn    // constants, variables and the stack of a CPU
	theConns // maps, as arguments of bpf_map_lookup_elem
	theConnHints
	otherMap
)

// connTable is the memory that the CPUs share.
type connTable struct {
	lines [connLines * connLineBytes]byte
	hints [connLines * objects.LineSlots]byte
}

// connMoment is a race between two steps.
type connMoment struct {
	connTable
	cpus [2]connCPU
}

// connCPU is a value, so that a copy is all of its state.
type connCPU struct {
	machine.CPU
	stack [connArgs + calls*connFrame]byte
	begun int // deeds
	busy  bool
	holds bool // its flow has an entry by its last deed
}

// connDeed is a call of flow_table.h, insert.h or sweep.h about a flow.
type connDeed struct {
	call string
	flow int
	at   int // of conn_put, conn_change: where the entry is; negative: nowhere
	bits uint64
}

// connHas is an entry that is in the table before a race. An established one that has an age has
// been closed by both sides.
type connHas struct {
	line, slot, flow int
	age              time.Duration
	established      bool
}

type connRace struct {
	what string
	has  []connHas
	do   [2][]connDeed
}

func accept(flow int) connDeed       { return connDeed{"conn_put", flow, -1, 0} }
func acceptAt(flow, at int) connDeed { return connDeed{"conn_put", flow, at, 0} }
func adoptConn(flow int) connDeed    { return connDeed{"conn_put", flow, -1, objects.IsEstablished} }
func establish(flow, at int) connDeed {
	return connDeed{"conn_change", flow, at, objects.IsEstablished}
}
func reject(flow, at int) connDeed { return connDeed{"conn_change", flow, at, 0} }
func findConn(flow int) connDeed   { return connDeed{call: "conn_find_slot", flow: flow} }
func sweepConns(line int) connDeed { return connDeed{call: "sweep_line", flow: line} }

// connsOfLine fills a line with entries of flows first to first+7; a lower slot is older.
func connsOfLine(line, first int, age time.Duration, established bool) (has []connHas) {
	for k := range objects.LineSlots {
		has = append(has, connHas{line, k, first + k, age + time.Duration(8-k)*time.Second, established})
	}
	return has
}

// connRaces: flows up to 19 have primary line 0 and alternate line 1.
func connRaces() []connRace {
	const alternate = objects.LineSlots // in a place
	const waited = 2 * time.Minute
	const wrapped = 1 << 16 * rig.ConnUnit // the same date as now
	full := connsOfLine(0, 0, 2*time.Second, false)
	settled := connsOfLine(0, 0, 0, true)
	again := func(flow int) []connDeed {
		return []connDeed{acceptAt(flow, flow), establish(flow, flow), findConn(flow)}
	}
	over := slices.Concat(connsOfLine(0, 0, waited, true), connsOfLine(1, 20, 0, true))
	do := func(a, b []connDeed) [2][]connDeed { return [2][]connDeed{a, b} }
	d := func(all ...connDeed) []connDeed { return all }
	return []connRace{
		{"two flows take free slots", nil, do(d(accept(8)), d(accept(9)))},
		{"one flow takes two", nil, do(d(accept(8)), d(accept(8)))},
		{"two want the oldest's slot", full, do(d(accept(8)), d(accept(9)))},
		{"the oldest is established", full, do(d(accept(8)), d(establish(0, 0)))},
		{"the oldest is rejected, and its slot taken", full, do(d(accept(8)), d(reject(0, 0), accept(9)))},
		{"the oldest begins again", full, do(d(accept(8)), d(acceptAt(0, 0)))},
		{"one is rejected and begins again", full, do(d(acceptAt(0, 0)), d(reject(0, 0), accept(0)))},
		{"one is rejected twice, and its slot taken", full, do(d(reject(3, 3)), d(reject(3, 3), accept(9)))},
		{"two take slots of the alternate line", settled, do(d(accept(8)), d(adoptConn(9)))},
		{"a displaced entry is rejected, and its slot taken", append(settled, connHas{1, 0, 8, 0, false}),
			do(d(reject(8, alternate)), d(accept(9)))},
		{"one that waited too long is swept, and its slot taken", connsOfLine(0, 0, waited, false)[:1], do(d(sweepConns(0)), d(accept(8)))},
		{"one that waited too long begins again", connsOfLine(0, 0, waited, false)[:1], do(d(sweepConns(0)), d(acceptAt(0, 0)))},
		{"one that waited too long is established", connsOfLine(0, 0, waited, false)[:1], do(d(sweepConns(0)), d(establish(0, 0)))},
		{"one that is over is swept, and its slot taken", connsOfLine(0, 0, waited, true)[:1], do(d(sweepConns(0)), d(accept(8)))},
		{"one that is over is swept, and begins again with its date", connsOfLine(0, 0, wrapped-8*time.Second, true)[:1], do(d(sweepConns(0)), again(0))},
		{"one that waited too long is swept, and begins again with its date", connsOfLine(0, 0, wrapped-8*time.Second, false)[:1],
			do(d(sweepConns(0)), d(acceptAt(0, 0), findConn(0)))},
		{"one that is over begins again, and would make room", over, do(d(adoptConn(8)), again(7))},
		{"a displaced one is swept", append(settled, connHas{1, 0, 8, waited, false}), do(d(sweepConns(1)), d(accept(9)))},
		{"two want the slot of one that is over", over, do(d(adoptConn(8)), d(adoptConn(9)))},
	}
}

// connTrack is where a race is run.
type connTrack struct {
	walker
	*connRace
	*machine.Code
	consts []byte
	hashes []uint64
}

// TestConnHints: whatever two CPUs do to the agent's table, and however their steps mingle, no
// entry is there without its hint, and none is half of one flow's and half of another's.
func TestConnHints(t *testing.T) {
	spec, err := objects.LoadAgent()
	if err != nil {
		t.Fatal(err)
	}
	for name, value := range map[string]any{"conn_lines": uint32(connLines), "virtual_time": true} {
		if err := spec.Variables[name].Set(value); err != nil {
			t.Fatal(err)
		}
	}
	consts := constsOf(spec)
	code := machine.New([]*ebpf.ProgramSpec{spec.Programs["agent_in"], spec.Programs["sweep_conns"]}, connFrame, func(ins asm.Instruction) uint64 {
		switch ins.Reference() {
		case objects.AgentMapConns:
			return theConns
		case objects.AgentMapConnHints:
			return theConnHints
		case ".rodata":
			return atOwn + connArgs + calls*connFrame + uint64(ins.Constant)>>32
		}
		return otherMap
	})
	for _, r := range connRaces() {
		t.Run(r.what, func(t *testing.T) {
			k := &connTrack{walker: newWalker(t), connRace: &r, Code: code, consts: consts, hashes: connHashes()}
			k.walk(k.start())
			t.Logf("%d moments", len(k.known))
		})
	}
}

// connHashes are hashes of flows with primary line 0 and alternate line 1, and from the 20th on
// of others.
func connHashes() (hashes []uint64) {
	for n := uint64(1); len(hashes) < 40; n++ {
		hash := (n|n<<(objects.HintShift-22))<<22 | uint64(len(hashes)/20)<<21 // with a hint
		lines, _ := rig.ConnLinesOf(hash, connLines)
		if primary := uint32(len(hashes) / 20); lines == [2]uint32{primary, 1 - primary} {
			hashes = append(hashes, hash)
		}
	}
	return hashes
}

func (k *connTrack) start() *connMoment {
	m := &connMoment{}
	for _, e := range k.has {
		fp := k.hashes[e.flow]&rig.ConnDigest | uint64(rig.Seen(connNow-e.age))&0xffff
		if e.established {
			fp |= objects.IsEstablished
		}
		if lines, _ := rig.ConnLinesOf(k.hashes[e.flow], connLines); int(lines[0]) != e.line {
			fp |= rig.ConnInAlternate
			first := m.lines[int(lines[0])*connLineBytes:][:8]
			machine.Write(first, machine.Read(first)+rig.ConnOneDisplaced)
		}
		line := m.lines[e.line*connLineBytes:][:connLineBytes]
		at := line[8*e.slot:][:8]
		machine.Write(at, machine.Read(at)|fp)
		var flags uint8
		if e.established && e.age > 0 {
			flags = objects.ConnClosed
		}
		copy(line[8*objects.LineSlots+connBytes*e.slot:], k.conn(e.flow, connNow-e.age, flags))
		m.hints[e.line*objects.LineSlots+e.slot] = rig.HintOf(fp)
	}
	return m
}

// conn is the bytes of an entry: its first word and its LB are the flow's hash.
func (k *connTrack) conn(flow int, seen time.Duration, flags uint8) []byte {
	c := objects.AgentConn{Seen: rig.Seen(seen), Flags: flags, Protocol: 6, LbBe: k.hashes[flow]}
	b, err := binary.Append(nil, binary.LittleEndian, c)
	if err != nil || len(b) != connBytes {
		k.Fatal(len(b), err)
	}
	machine.Write(b[:8], k.hashes[flow])
	return b
}

// begin calls the function of a deed, with what its pointers point to on top of the stack.
func (k *connTrack) begin(p *connCPU, d connDeed) {
	const flow, conn = atOwn, atOwn + tupleBytes
	*p = connCPU{begun: p.begun + 1, busy: true, holds: p.holds}
	var args []uint64
	switch d.call {
	case "conn_put":
		copy(p.stack[tupleBytes:], k.conn(d.flow, connNow, 0))
		machine.Write(p.stack[:8], k.hashes[d.flow])
		args = []uint64{flow, k.hashes[d.flow], conn, uint64(d.at), d.bits}
	case "conn_find_slot":
		copy(p.stack[:tupleBytes], k.conn(d.flow, connNow, 0))
		args = []uint64{flow, k.hashes[d.flow], uint64(connNow)}
	case "conn_change":
		args = []uint64{k.hashes[d.flow], uint64(d.at), d.bits}
	case "sweep_line":
		sweep := objects.AgentSweep{NowNs: uint64(connNow), From: uint32(d.flow), Count: 1}
		if _, err := binary.Encode(p.stack[:connArgs], binary.LittleEndian, sweep); err != nil {
			k.Fatal(err)
		}
		args = []uint64{0, atOwn}
	}
	p.CPU = k.Call(d.call, atOwn+connArgs, args...)
}

// next lets a CPU go on, to its next look at the table; false: it has done all.
func (k *connTrack) next(m *connMoment, i int) bool {
	p := &m.cpus[i]
	if !p.busy {
		if p.begun == len(k.do[i]) {
			return false
		}
		k.begin(p, k.do[i][p.begun])
	}
	w := &connWorld{k, p, &m.connTable}
	for first := true; ; first = false {
		ins := k.Next(&p.CPU)
		if !first && ins.Touches(&p.CPU, atConns, atOwn) {
			return true
		}
		if ins.Exits() { // so that equal states look equal
			clear(p.stack[connArgs+p.Depth*connFrame:][:connFrame])
		}
		if !k.Step(&p.CPU, w) {
			*p = connCPU{begun: p.begun, holds: k.holds(k.do[i][p.begun-1], p)}
			return true
		}
	}
}

// holds is whether a CPU's flow has an entry after a deed. A search of the same CPU finds it.
func (k *connTrack) holds(d connDeed, p *connCPU) bool {
	told := int32(p.Reg[0])
	if d.call == "conn_find_slot" && p.holds && told < 0 {
		k.Errorf("%s: its flow is not found", inTurns(k.turns))
	}
	switch d.call {
	case "conn_put":
		return told >= 0
	case "conn_change":
		return d.bits != 0 && told&1 != 0
	}
	return p.holds
}

// walk goes through all that can come of a moment: each CPU may be the next one.
func (k *connTrack) walk(m *connMoment) {
	walk(&k.walker, m, func(m *connMoment, try func(byte, func(*connMoment) bool)) {
		for i := range m.cpus {
			try(byte(i), func(then *connMoment) bool { return k.next(then, i) })
		}
	}, k.judge)
}

// judge holds the table against flow_table.h: an entry that a search can find has its hint and is whole;
// in the end no slot is claimed, a free one has no hint, and displaced entries are counted.
func (k *connTrack) judge(m *connMoment, over bool) {
	var counted [connLines]int
	for at, hint := range m.hints {
		number, slot := at/objects.LineSlots, at%objects.LineSlots
		line := m.lines[number*connLineBytes:][:connLineBytes]
		fp := machine.Read(line[8*slot:][:8])
		found := fp > objects.NoDigest && fp < rig.ConnDigest
		if slot == 0 {
			counted[number] += int(fp & rig.ConnDisplaced / rig.ConnOneDisplaced)
		}
		if found && fp&rig.ConnInAlternate != 0 {
			counted[1-number]--
		}
		if found && hint != rig.HintOf(fp) || over && hint != rig.HintOf(fp) || over && fp >= rig.ConnDigest {
			k.Errorf("%s: line %d, slot %d: fingerprint %x, hint %x", inTurns(k.turns), number, slot, fp, hint)
		}
		c := line[8*objects.LineSlots+connBytes*slot:][:connBytes]
		if flow, lb := machine.Read(c[:8]), machine.Read(c[tupleBytes:][:8]); found && (flow != lb || (flow^fp)&rig.ConnDigest != 0) {
			k.Errorf("%s: line %d, slot %d: fingerprint %x, flow %x, of its LB %x", inTurns(k.turns), number, slot, fp, flow, lb)
		}
	}
	if over && counted != [connLines]int{} {
		k.Errorf("%s: displaced entries counted, less those that are there: %v", inTurns(k.turns), counted)
	}
}

// connWorld is the world as one CPU sees it.
type connWorld struct {
	*connTrack
	*connCPU
	table *connTable
}

// Help is bpf_map_lookup_elem: of the table, or of a map that has nothing.
func (w *connWorld) Help(_ *machine.Code, helper asm.BuiltinFunc, p *machine.CPU) {
	if helper != asm.FnMapLookupElem {
		panic(fmt.Sprintf("%v: not known here", helper))
	}
	which, key := p.Reg[1], uint64(binary.LittleEndian.Uint32(w.stack[p.Reg[2]-atOwn:]))
	clear(p.Reg[:6])
	switch {
	case key >= connLines:
	case which == theConns:
		p.Reg[0] = atConns + key*uint64(connLineBytes)
	case which == theConnHints:
		p.Reg[0] = atConnHints + key*uint64(objects.LineSlots)
	}
}

func (w *connWorld) Memory(addr uint64, size int) []byte {
	offset := addr & 0xffffffff
	switch addr - offset {
	case atConns:
		return w.table.lines[offset:][:size]
	case atConnHints:
		return w.table.hints[offset:][:size]
	case atOwn:
		if int(offset) < len(w.stack) {
			return w.stack[offset:][:size]
		}
		return w.consts[int(offset)-len(w.stack):][:size]
	case otherMap:
		return make([]byte, size) // variables at their first values
	}
	panic(fmt.Sprintf("address %x", addr))
}
