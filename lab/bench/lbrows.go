package bench

import (
	"errors"
	"strings"
	"time"

	"proffer/topo"

	"proffer/wire"
)

// lbRows are all rows of the load balancer.
func (s *session) lbRows() (rows []*benchRow) {
	hunt, single := modes()[0], mode{}
	for i, m := range modes() {
		if m.dispatch.Learns() {
			for _, n := range []int{min(1000, s.most()), min(othersAtMost, s.most())} {
				rows = append(rows, s.steerRow(m, n), s.steerKeptRow(hunt, n))
			}
			continue
		}
		for _, n := range s.Flows {
			if i == 0 || n <= othersAtMost || m.dispatch.Keeps() && m.wire == topo.Encap || !m.dispatch.Tracks() {
				rows = append(rows, s.steerRow(m, n))
			}
		}
		if m.dispatch.Keeps() && m.wire == topo.Encap {
			rows = append(rows, s.beginRow(m))
			if single.name == "" {
				single = m
			}
		}
		if !m.dispatch.Signals() {
			continue
		}
		rows = append(rows,
			s.clientRow(m, "offer", wire.SYN, counts{"offer": 1}),
			s.clientRow(m, "recover", wire.ACK, counts{"recover": 1}),
			s.newRow(m))
	}
	few := min(1000, s.most())
	rows = append(rows,
		s.fullRow(hunt), s.establishRow(hunt), s.recoveredRow(hunt), s.removedRow(hunt),
		s.signalRow(hunt, few),
		s.signalRow(hunt, min(othersAtMost, s.most())),
		s.mixedRow(hunt, min(100_000, s.most())), s.mixedRow(single, min(100_000, s.most())),
		s.signedOfferRow(hunt), s.signedNewRow(hunt), s.signedSignalRow(hunt))
	for _, c := range connections() {
		rows = append(rows, s.connectionRow(hunt, c))
	}
	rows = append(rows, s.learnedRows()...)
	if s.second >= 0 {
		rows = append(rows, s.contendedRow(hunt, few))
	}
	return unlike(rows)
}

// unlike leaves out rows with the name of an earlier row, as few flows make them.
func unlike(rows []*benchRow) (out []*benchRow) {
	seen := map[string]bool{}
	for _, r := range rows {
		if !seen[r.name()] {
			seen[r.name()] = true
			out = append(out, r)
		}
	}
	return out
}

// most is the largest number of flows that the session asks for.
func (s *session) most() int {
	most := 0
	for _, n := range s.Flows {
		most = max(most, n)
	}
	return most
}

func (s *session) lbRow(m mode, kind string, flows int) *benchRow {
	row := &benchRow{program: "lb", mode: m.name, kind: kind, flows: flows, floor: "line"}
	if !strings.HasPrefix(kind, "steer") { // it reads the tables of a million flows
		row.beside = othersAtMost
	}
	return row
}

// steerRow is data of known flows.
func (s *session) steerRow(m mode, flows int) *benchRow {
	return s.steerRowOf(m, "steer", m.home(), flows)
}

// steerKeptRow is steerRow in the table of the modes in which clients' packets make the entries.
func (s *session) steerKeptRow(m mode, flows int) *benchRow {
	return s.steerRowOf(m, "steer-kept", lbKept, flows)
}

func (s *session) steerRowOf(m mode, kind, purpose string, flows int) *benchRow {
	row := s.lbRow(m, kind, flows)
	var lb *lbBench
	row.setup = func() (err error) {
		if lb, err = s.lb(purpose); err != nil {
			return err
		}
		return s.know(lb, m, uint32(flows))
	}
	row.pass = func() pass {
		p := lb.fromClient(m, wire.ACK, packets, m.known())
		p.drill.Flows = uint32(flows)
		return p
	}
	return row
}

// clientRow is packets of clients that the LB does not know, each another flow.
func (s *session) clientRow(m mode, kind string, flags byte, want counts) *benchRow {
	return s.strangersRow(m, kind, lbKnown, flags, want)
}

func (s *session) strangersRow(m mode, kind, purpose string, flags byte, want counts) *benchRow {
	row := s.lbRow(m, kind, packets)
	var lb *lbBench
	row.setup = func() (err error) {
		lb, err = s.lb(purpose)
		return err
	}
	row.pass = func() pass {
		p := lb.fromClient(m, flags, packets, want)
		p.drill.First = lb.unused(packets)
		return p
	}
	return row
}

// beginRow is SYNs of new flows that make entries, into an empty table.
func (s *session) beginRow(m mode) *benchRow {
	row := s.lbRow(m, "begin", benchMade)
	var lb *lbBench
	first := uint32(0)
	row.setup = func() (err error) {
		lb, err = s.lb(lbEmpty)
		return err
	}
	fromClient := func(flags byte, want counts) pass {
		p := lb.fromClient(m, flags, benchMade, want)
		p.drill.First = first
		return p
	}
	row.prepare = func() error {
		first = lb.unused(benchMade)
		return lb.sweep(benchMade)
	}
	row.pass = func() pass { return fromClient(wire.SYN, isBegun) }
	row.cleanup = func() error {
		return errors.Join(s.untimed(fromClient(wire.ACK, isEstablished)), s.untimed(fromClient(wire.RST, counts{"steer": 1})))
	}
	return row
}

// mixedRow is nine packets of known flows to each SYN of a new one.
func (s *session) mixedRow(m mode, flows int) *benchRow {
	row := s.steerRow(m, flows)
	row.kind = "mixed"
	row.pass = func() pass {
		lb := s.lbs[m.home()]
		p := lb.fromClient(m, wire.ACK, packets, m.known())
		switch {
		case m.dispatch.Keeps():
			p.want = counts{"steer": 0.9, "deliver": 0.1, "flow_begun": 0.1}
		case m.dispatch.Signals():
			p.want = counts{"steer": 0.9, "offer": 0.1}
		}
		p.drill.Flows, p.drill.OpensEvery = uint32(flows), 10
		p.drill.Opened = lb.unused(packets / 10)
		return p
	}
	return row
}

// A signal's row makes flows in a table that has few others, which are over after the turn.
func (s *session) makingRow(m mode, kind, purpose string, prepare, made func(*lbBench) pass) *benchRow {
	row := s.lbRow(m, kind, benchMade)
	var lb *lbBench
	first := uint32(0)
	row.setup = func() (err error) {
		lb, err = s.lb(purpose)
		return err
	}
	of := func(p pass) pass {
		p.drill.First = first
		return p
	}
	row.prepare = func() error {
		others := 0
		if purpose != lbSigned { // where the tags are of the same flows again
			first, others = lb.unused(benchMade), benchMade
		}
		if err := lb.sweep(others); err != nil || prepare == nil {
			return err
		}
		return s.untimed(of(prepare(lb)))
	}
	row.pass = func() pass { return of(made(lb)) }
	row.cleanup = func() error { return s.reset(lb, m, first, benchMade) }
	return row
}

func (s *session) untimed(p pass) error {
	_, err := p.run(s.CPU)
	return err
}

// reset is the server's resets of these flows: their entries may go.
func (s *session) reset(lb *lbBench, m mode, first, count uint32) error {
	p := lb.fromServer(m, 0, wire.RemoveStickiness, wire.RST|wire.ACK, int(count), counts{"stickiness_removed": 1})
	p.drill.First = first
	return s.untimed(p)
}

// sweep waits until closed flows have been removed but for so many: the table knows times to
// a quarter of a second.
func (lb *lbBench) sweep(most int) error {
	known := uint64(most)
	for _, n := range lb.known {
		known += uint64(n)
	}
	for range 12 {
		swept, err := lb.Sweep()
		if err != nil || swept.Kept <= known {
			return err
		}
		time.Sleep(100 * time.Millisecond)
	}
	return nil
}

var (
	isNew       = counts{"stickiness_created": 1, "mss_clamped": 1}
	isRecovered = counts{"stickiness_recovered": 1}
	// takes is a new flow in the place of an embryonic one, or an expired one.
	takes = counts{"stickiness_created": 1, "mss_clamped": 1, "evicted_embryonic": anyNumber, "evicted_expired": anyNumber}
)

// newRow is the signals around SYN-ACKs of new flows, into an empty table.
func (s *session) newRow(m mode) *benchRow {
	return s.makingRow(m, "new-filling", lbEmpty, nil, func(lb *lbBench) pass {
		return lb.fromServer(m, 0, wire.CreateStickiness, wire.SYN|wire.ACK, benchMade, isNew)
	})
}

// establishRow is the clients' acknowledgements of those SYN-ACKs.
func (s *session) establishRow(m mode) *benchRow {
	return s.makingRow(m, "establish", lbEmpty, func(lb *lbBench) pass {
		return lb.fromServer(m, 0, wire.CreateStickiness, wire.SYN|wire.ACK, benchMade, isNew)
	}, func(lb *lbBench) pass {
		return lb.fromClient(m, wire.ACK, benchMade, counts{"flow_established": 1, "steer": 1})
	})
}

// recoveredRow is the signals around data of flows that the LB did not see begin.
func (s *session) recoveredRow(m mode) *benchRow {
	return s.makingRow(m, "recovered", lbEmpty, nil, func(lb *lbBench) pass {
		return lb.fromServer(m, 0, wire.CreateStickiness, wire.ACK, benchMade, isRecovered)
	})
}

// removedRow is the signals around the servers' FINs.
func (s *session) removedRow(m mode) *benchRow {
	return s.makingRow(m, "signal-removed", lbEmpty, func(lb *lbBench) pass {
		return lb.fromServer(m, 0, wire.CreateStickiness, wire.ACK, benchMade, isRecovered)
	}, func(lb *lbBench) pass {
		return lb.fromServer(m, 0, wire.RemoveStickiness, wire.FIN|wire.ACK, benchMade, counts{"stickiness_removed": 1})
	})
}

// fullRow is the signals around SYN-ACKs of new flows where as many wait for
// their clients as there is room for: each takes the place of another.
func (s *session) fullRow(m mode) *benchRow {
	row := s.lbRow(m, "new-full", benchMade)
	var lb *lbBench
	row.setup = func() (err error) {
		lb, err = s.fullTable(m)
		return err
	}
	row.pass = func() pass { return lb.filling(m, benchMade) }
	return row
}

// fullTable is an LB without room for another flow that is embryonic.
func (s *session) fullTable(m mode) (*lbBench, error) {
	lb, err := s.lb(lbFull)
	if err == nil && lb.known[lbFull] == 0 {
		lb.known[lbFull] = insertEntries
		err = s.untimed(lb.filling(m, insertEntries*2)) // more than there are slots
	}
	return lb, err
}

// filling is n new flows that wait for their clients.
func (lb *lbBench) filling(m mode, n int) pass {
	p := lb.fromServer(m, 0, wire.CreateStickiness, wire.SYN|wire.ACK, n, takes)
	p.drill.First = lb.unused(n)
	return p
}

// signalRow is signals that a server repeats about known flows.
func (s *session) signalRow(m mode, flows int) *benchRow {
	row := s.steerRow(m, flows)
	row.kind = "signal"
	row.setup = func() error {
		lb, err := s.lb(lbOneServer)
		if err != nil || lb.known[m.name] >= uint32(flows) {
			return err
		}
		p := lb.fromServer(m, 0, wire.CreateStickiness, wire.ACK, flows-int(lb.known[m.name]), isRecovered)
		p.drill.First = lb.known[m.name]
		lb.known[m.name] = uint32(flows)
		return s.untimed(p)
	}
	row.pass = func() pass {
		p := s.lbs[lbOneServer].fromServer(m, 0, wire.CreateStickiness, wire.ACK, packets, counts{"stickiness_repeated": 1})
		p.drill.Flows = uint32(flows)
		return p
	}
	return row
}
