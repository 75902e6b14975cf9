package bench

import (
	"fmt"

	inkernel "proffer/dataplane/bench"
	"proffer/wire"
)

// connection is a kind of connections: SYN, the server's signal around its SYN-ACK, the
// client's acknowledgement and so many packets of data, and the signal around the server's
// FIN if it ends.
type connection struct {
	name  string
	data  int
	ends  bool
	apart int  // so many others begin between two of its steps
	full  bool // in a table that is full
}

// apart is enough that a connection's lines have left the CPU's own caches when its next
// step comes.
const apart = 1 << 14

// connections are the kinds that have rows.
func connections() []connection {
	return []connection{
		{name: "opening"},
		{name: "opening-apart", apart: apart},
		{name: "opening-apart-full", apart: apart, full: true},
		{name: "opening-end-apart", ends: true, apart: apart},
		{name: "connection-1", data: 1, ends: true},
		{name: "connection-10", data: 10, ends: true},
		{name: "connection-100", data: 100, ends: true},
		{name: "connection-1-apart", data: 1, ends: true, apart: apart},
		{name: "connection-10-apart", data: 10, ends: true, apart: apart},
		{name: "connection-1-apart-full", data: 1, ends: true, apart: apart, full: true},
	}
}

// packets is how many a connection has at the LB.
func (c connection) packets() int {
	if c.ends {
		return c.data + 4
	}
	return c.data + 3
}

// together is how many connections a run has.
func (c connection) together() int { return min(benchMade/5, packets/c.packets()) }

// stage is a step of a connection, and the counters that its first packet moves; each other is
// steered.
type stage struct {
	inkernel.Step
	want counts
}

// stages are the packets of a connection in their order.
func (c connection) stages(m mode) []stage {
	made := isNew
	if c.full {
		made = takes
	}
	client := m.fromClient(wire.ACK).Step
	client.Times = 1 + c.data
	all := []stage{
		{m.fromClient(wire.SYN).Step, counts{"offer": 1}},
		{m.fromServer(0, wire.CreateStickiness, wire.SYN|wire.ACK, 0).Step, made},
		{client, counts{"flow_established": 1, "steer": 1}},
	}
	if c.ends {
		all = append(all, stage{m.fromServer(0, wire.RemoveStickiness, wire.FIN|wire.ACK, 0).Step, counts{"stickiness_removed": 1}})
	}
	for i := range all {
		all[i].Ahead = (len(all) - 1 - i) * c.apart
	}
	return all
}

// pass is so many connections on their way through a program.
func (c connection) pass(in benched, m mode, connections int) pass {
	p := pass{in: in, packets: connections * c.packets(), want: counts{}, verdict: xdpTX}
	for i, s := range c.stages(m) {
		if i == 0 {
			p.drill.Step = s.Step
		} else {
			p.drill.After = append(p.drill.After, s.Step)
		}
		for name, n := range s.want {
			p.want[name] += n / float64(c.packets())
		}
	}
	p.want["steer"] += float64(c.data) / float64(c.packets())
	return p
}

// begin takes the connections that are ahead of a run's first to the steps where they are then.
func (s *session) begin(lb *lbBench, m mode, c connection, first uint32) error {
	return s.beginStages(lb, c.name, c.stages(m), first)
}

func (s *session) beginStages(lb *lbBench, name string, stages []stage, first uint32) error {
	for _, stage := range stages {
		if stage.Ahead == 0 {
			continue
		}
		p := pass{in: lb, packets: stage.Ahead, want: stage.want, verdict: xdpTX}
		p.drill = inkernel.Drill{Step: stage.Step, First: first, Changed: 160}
		if err := s.untimed(p); err != nil {
			return fmt.Errorf("begin %s: %w", name, err)
		}
	}
	return nil
}

// connectionRow is whole connections, in turn, each another flow. They are over
// after the turn.
func (s *session) connectionRow(m mode, c connection) *benchRow {
	row := s.lbRow(m, c.name, c.together())
	row.packets, row.loop = c.packets(), c.loop()
	var lb *lbBench
	var first, made uint32
	row.setup = func() (err error) {
		if c.full {
			lb, err = s.fullTable(m)
		} else {
			lb, err = s.lb(lbEmpty)
		}
		return err
	}
	row.prepare = func() error {
		stages := c.stages(m)
		made = uint32(c.together() + stages[1].Ahead) // those of which the server's answer has come
		first = lb.unused(c.together() + stages[0].Ahead)
		if !c.full {
			if err := lb.sweep(benchMade); err != nil {
				return err
			}
		}
		return s.begin(lb, m, c, first)
	}
	row.pass = func() pass {
		p := c.pass(lb, m, c.together())
		p.drill.First = first
		return p
	}
	row.cleanup = func() error { return s.reset(lb, m, first, made) } // in a full table they give way to the next
	return row
}

// loop is the kind of the bench's own loop around it.
func (c connection) loop() string { return fmt.Sprint("loop-", c.packets()) }

// connectionLoops are the bench's own loops around connections: the same frames.
func (s *session) connectionLoops() (rows []*benchRow) {
	m := modes()[0]
	for _, c := range connections() {
		row := s.floorRow(c.loop(), inkernel.FloorLoop, 1)
		row.packets, row.loop = c.packets(), c.loop()
		row.pass = func() pass {
			p := c.pass(floorBench{s.floors.Floors, inkernel.FloorLoop}, m, c.together())
			p.want = nil
			return p
		}
		rows = append(rows, row)
	}
	return unlike(rows)
}
