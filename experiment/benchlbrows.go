package experiment

import (
	"time"

	"proffer/dataplane"
)

// lbRows are all rows of the load balancer.
func (s *benchSession) lbRows() (rows []*benchRow) {
	for i, m := range benchModes() {
		for _, n := range s.Flows {
			if i > 0 && n > othersAtMost {
				continue
			}
			rows = append(rows, s.steerRow(m, n))
		}
	}
	return rows
}

// row is one of the LB's.
func lbRow(m benchMode, kind string, flows int) *benchRow {
	return &benchRow{program: "lb", mode: m.name, kind: kind, flows: flows, floor: "line"}
}

// holds tells whether the LB has an entry for each flow of a mode.
func (m *benchMode) holds() bool { return m.dispatch.String() == "hunt" }

// steerRow is data of known flows.
func (s *benchSession) steerRow(m benchMode, flows int) *benchRow {
	row := lbRow(m, "steer", flows)
	var lb *lbBench
	row.setup = func() (err error) {
		if lb, err = s.lb("known"); err != nil || !m.holds() {
			return err
		}
		return s.know(lb, m, uint32(flows))
	}
	row.measure = func() (time.Duration, error) {
		want := counts{"steer": 1}
		if !m.holds() {
			want = counts{"deliver": 1}
		}
		p := pass{in: lb, drill: m.fromClient(tcpACK), packets: benchPackets, want: want, verdict: xdpTX}
		p.drill.Flows = uint32(flows)
		return p.run(s.CPU)
	}
	return row
}

// lb loads an LB for a purpose, once.
func (s *benchSession) lb(purpose string) (l *lbBench, err error) {
	if l = s.lbs[purpose]; l != nil {
		return l, nil
	}
	switch purpose {
	case "known":
		l, err = newLBBench(s.knownEntries())
	}
	if err != nil {
		return nil, err
	}
	s.lbs[purpose] = l
	s.open = append(s.open, l)
	return l, nil
}

// knownEntries is the size of the table of those flows that are known throughout.
func (s *benchSession) knownEntries() int {
	most := s.Flows[len(s.Flows)-1]
	others := 0
	for i, m := range benchModes() {
		if i > 0 && m.holds() {
			others += min(most, othersAtMost)
		}
	}
	return max(int(float64(most+others)/tableFilled), 1024)
}

// know makes an LB have flows 0 to n-1 of a mode: their servers say so in data,
// which is how an LB learns of flows that it has not seen begin.
func (s *benchSession) know(l *lbBench, m benchMode, n uint32) error {
	server := 0
	for first := l.known[m.name]; first < n; first = l.known[m.name] {
		// Ever larger pieces, so that few flows are on many servers, too.
		count := min(max(first/8, 1), n-first)
		p := s.learnt(l, m, server%benchServers, first, count)
		if _, err := p.run(s.CPU); err != nil {
			return err
		}
		l.known[m.name] += count
		server++
	}
	return nil
}

// learnt is servers' signals about data of flows that the LB does not know.
func (s *benchSession) learnt(in benched, m benchMode, server int, first, count uint32) pass {
	p := pass{in: in, packets: int(count), want: counts{"stickiness_recovered": 1}, verdict: xdpTX}
	p.drill = m.fromServer(server, fnCreate, tcpACK, 0)
	p.drill.First = first
	return p
}

var _ benched = (*dataplane.BenchLB)(nil)
