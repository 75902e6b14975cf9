package bench

import (
	"fmt"
	"net/netip"

	"proffer/dataplane"
	inkernel "proffer/dataplane/bench"
	"proffer/wire"
)

// floorBench is one floor in a bench. It counts nothing: its verdict shows
// whether it found the flow.
type floorBench struct {
	*inkernel.Floors
	floor string
}

func (f floorBench) Run(cpu, packets int, d *inkernel.Drill) (inkernel.Run, error) {
	return f.Floors.Run(f.floor, cpu, packets, d)
}

func (f floorBench) Counters() ([]dataplane.Counter, error) { return nil, nil }

// floorBenches are the floors with tables that have the flows of the session.
type floorBenches struct {
	*inkernel.Floors
	known map[string]uint32 // flows in each table
}

// entriesOfLine is how many flows a line of a flow table holds.
const entriesOfLine = 4

// floorRows are the floors: those that touch flows at each number of flows.
func (s *session) floorRows() (rows []*benchRow) {
	for _, f := range []struct{ kind, program string }{
		{"loop", inkernel.FloorLoop}, {"adjust-head", inkernel.FloorAdjustHead},
		{"encapsulate", inkernel.FloorEncapsulate}, {"clock", inkernel.FloorClock},
		{"calls", inkernel.FloorCalls}, {"helpers", inkernel.FloorHelpers},
	} {
		rows = append(rows, s.floorRow(f.kind, f.program, 1))
	}
	rows = append(rows, s.connectionLoops()...)
	rows = append(rows, s.outFloorRow("loop-egress", packets, false), s.outFloorRow("loop-egress-once", benchOnce, true))
	for _, n := range s.Flows {
		rows = append(rows, s.floorRow("line", inkernel.FloorLine, n))
	}
	for _, n := range s.Flows {
		if n <= othersAtMost {
			rows = append(rows,
				s.tableFloorRow("hash", inkernel.FloorHash, inkernel.FloorHashInsert, n),
				s.tableFloorRow("lru-hash", inkernel.FloorLRUHash, inkernel.FloorLRUHashInsert, n))
		}
	}
	return append(rows,
		s.fillingFloorRow("hash-filling", inkernel.FloorHashInsert),
		s.fillingFloorRow("lru-hash-filling", inkernel.FloorLRUHashInsert),
		s.fullFloorRow("lru-hash-full", inkernel.FloorLRUHashInsert))
}

// floorPass is client's data on its way through a floor.
func floorPass(in *inkernel.Floors, floor string, packets int) pass {
	m := mode{vip: netip.MustParseAddr("2001:db8:f::1")}
	return pass{in: floorBench{in, floor}, drill: m.fromClient(wire.ACK), packets: packets, verdict: xdpTX}
}

func (s *session) floorRow(kind, program string, flows int) *benchRow {
	row := &benchRow{program: "floor", kind: kind, flows: flows, floor: "line"}
	row.setup = s.loadFloors
	row.pass = func() pass {
		p := floorPass(s.floors.Floors, program, packets)
		p.drill.Flows = uint32(flows)
		return p
	}
	return row
}

// outFloorRow is the bare loop of a program on the way out.
func (s *session) outFloorRow(kind string, packets int, once bool) *benchRow {
	row := s.floorRow(kind, inkernel.FloorLoopOut, 1)
	row.loop = kind
	row.pass = func() pass {
		p := floorPass(s.floors.Floors, inkernel.FloorLoopOut, packets)
		p.drill.Flows, p.drill.Once, p.verdict = 1, once, tcOK
		return p
	}
	return row
}

// tableFloorRow looks up flows that insert has put into one of the kernel's tables.
func (s *session) tableFloorRow(kind, program, insert string, flows int) *benchRow {
	row := s.floorRow(kind, program, flows)
	row.setup = func() error {
		if err := s.loadFloors(); err != nil {
			return err
		}
		first := s.floors.known[kind]
		if first >= uint32(flows) {
			return nil
		}
		p := floorPass(s.floors.Floors, insert, flows-int(first))
		p.drill.First = first
		s.floors.known[kind] = uint32(flows)
		_, err := p.run(s.CPU)
		return err
	}
	return row
}

// loadFloors loads the floors once. Their tables have a quarter more room than
// flows: an LRU map evicts before it is full.
func (s *session) loadFloors() error {
	if s.floors != nil {
		return nil
	}
	flows := min(s.Flows[len(s.Flows)-1], othersAtMost)
	f, err := inkernel.NewFloors(flows*5/4+4096, s.lineCount(), inkernel.FloorLoop, inkernel.FloorAdjustHead,
		inkernel.FloorEncapsulate, inkernel.FloorClock, inkernel.FloorLine, inkernel.FloorHash,
		inkernel.FloorLRUHash, inkernel.FloorHashInsert, inkernel.FloorLRUHashInsert, inkernel.FloorLoopOut, inkernel.FloorCalls, inkernel.FloorHelpers)
	if err != nil {
		return fmt.Errorf("load the floors: %w", err)
	}
	s.floors = &floorBenches{f, map[string]uint32{}}
	s.open = append(s.open, f)
	return nil
}

// lineCount is how many lines the flow table of this session's LB has.
func (s *session) lineCount() int { return s.knownEntries() * 5 / 4 / entriesOfLine }

// fillingFloorRow makes entries in a table that is empty before each run.
func (s *session) fillingFloorRow(kind, program string) *benchRow {
	row := &benchRow{program: "floor", kind: kind, flows: benchMade, floor: "line"}
	var f *inkernel.Floors
	row.prepare = func() (err error) {
		f, err = inkernel.NewFloors(insertEntries, 1, program)
		return err
	}
	row.pass = func() pass { return floorPass(f, program, benchMade) }
	row.cleanup = func() error { return f.Close() }
	return row
}

// fullFloorRow makes entries in a full table, each instead of an older entry.
func (s *session) fullFloorRow(kind, program string) *benchRow {
	row := &benchRow{program: "floor", kind: kind, flows: benchMade, floor: "line"}
	var f *inkernel.Floors
	next := uint32(0)
	insert := func(packets int) pass {
		p := floorPass(f, program, packets)
		p.drill.First = next
		next += uint32(packets)
		return p
	}
	row.setup = func() (err error) {
		if f, err = inkernel.NewFloors(insertEntries, 1, program); err != nil {
			return err
		}
		s.open = append(s.open, f)
		return s.untimed(insert(insertEntries * 5 / 4))
	}
	row.pass = func() pass { return insert(benchMade) }
	return row
}
