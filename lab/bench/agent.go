package bench

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"

	"proffer/dataplane"
	inkernel "proffer/dataplane/bench"
	"proffer/lab/traffic"
	"proffer/topo"
	"proffer/wire"
)

// agentBench is the agent of server 0 in a bench.
type agentBench struct {
	*inkernel.Agent
	listener net.Listener
	known    uint32 // flows of agentTaking that are DIRECT
}

// agentOut is its program on the way out.
type agentOut struct {
	*inkernel.Bench
	agent *agentBench
}

func (o agentOut) Counters() ([]dataplane.Counter, error) { return o.agent.Counters() }

// agentService is one of the agent's, all with a listener, by static:C.
type agentService struct {
	vip       netip.Addr
	threshold int
	owner     topo.Owner
	wire      topo.Wire
}

// The uses of the agent's services. The flows that it knows have no sockets: the
// service's own table has them, as where servers are containers
// with sockets out of sight. Known flows take the same path either way.
var (
	agentWilling  = agentService{netip.MustParseAddr("2001:db8:f::1"), 4, topo.Socket, topo.Encap}
	agentBusy     = agentService{netip.MustParseAddr("2001:db8:f::2"), 0, topo.Socket, topo.Encap}
	agentTaking   = agentService{netip.MustParseAddr("2001:db8:f::3"), 4, topo.Table, topo.Encap}
	agentWaiting  = agentService{netip.MustParseAddr("2001:db8:f::4"), 4, topo.Table, topo.Encap}
	agentIn       = agentService{netip.MustParseAddr("2001:db8:f::5"), 4, topo.Table, topo.Insert}
	agentUnserved = agentService{vip: netip.MustParseAddr("2001:db8:f::6")} // no service
)

const (
	agentEntries = 65536 // as agents have without a word about it in their configuration
	agentFlows   = 10_000
	agentPiece   = 4096 // flows that wait at a time
	fewFlows     = 1000 // of the floor beside rows that compute more than they read
)

// loadAgent loads the agent once, in the thread's namespace, with a listener.
func (s *session) loadAgent() error {
	if s.agent != nil {
		return nil
	}
	cfg := &topo.Agent{
		Node:  topo.Node{Name: "s0", Locator: benchServer(0), Interface: device},
		Flows: topo.FlowTable{Entries: agentEntries, Idle: time.Hour, Linger: 1},
	}
	for i, svc := range []agentService{agentWilling, agentBusy, agentTaking, agentWaiting, agentIn} {
		cfg.Services = append(cfg.Services, topo.Offering{
			Name: fmt.Sprint("service", i), VIP: topo.VIP{Addr: svc.vip, Port: port},
			Acceptance: topo.Static, Threshold: svc.threshold, Cores: 2, Workers: 32, Owner: svc.owner, Wire: svc.wire,
		})
	}
	a, err := inkernel.NewAgent(cfg)
	if err != nil {
		return err
	}
	s.agent = &agentBench{Agent: a}
	s.open = append(s.open, s.agent)
	if s.agent.listener, err = net.Listen("tcp6", fmt.Sprintf("[::]:%d", port)); err != nil {
		return fmt.Errorf("listen for the agent: %w", err)
	}
	if err := a.Complete(); err != nil {
		return err
	}
	return a.SetNextHops(topo.NextHops{
		lbSelf:         {2, 0, 0, 0, 0, 0xb},
		benchServer(1): {2, 0, 0, 0, 1, 1},
	})
}

func (a *agentBench) Close() error {
	var err error
	if a.listener != nil {
		err = a.listener.Close()
	}
	return errors.Join(err, a.Agent.Close())
}

// agentRows are all rows of the agent.
func (s *session) agentRows() (rows []*benchRow) {
	rows = append(rows,
		s.agentRow("hunt", "not-ours", packets, func() pass {
			p := s.toAgent(agentUnserved, wire.ACK, packets, counts{"pass_not_sid": 1})
			p.drill.Changed = 0
			return p
		}),
		s.agentRow("hunt", "offer-accept", benchMade, func() pass {
			return s.asked(agentWilling, wire.SYN, benchMade, counts{"accept_avail": 1}, wire.ConnectAvail, wire.ConnectForce)
		}),
		s.agentRow("hunt", "offer-pass-on", benchMade, func() pass {
			p := s.asked(agentBusy, wire.SYN, benchMade, counts{"pass_on_busy": 1}, wire.ConnectAvail, wire.ConnectForce)
			p.drill.Changed, p.verdict = 64, xdpTX
			return p
		}))
	for _, r := range rows {
		r.beside = fewFlows
	}
	rows[0].flows = 1
	for _, n := range s.Flows {
		if n <= agentFlows {
			rows = append(rows, s.agentSteerRow(n))
		}
	}
	few := min(1000, s.most())
	return append(rows, s.establishedRow(few), s.notOursOutRow(), s.directOutRow(few),
		s.waitOutRow("hunt", agentWaiting, few, true), s.waitOutRow("hunt-insert", agentIn, few, false))
}

// agentRow is a row with packets of different flows.
func (s *session) agentRow(mode, kind string, flows int, p func() pass) *benchRow {
	row := &benchRow{program: "agent", mode: mode, kind: kind, flows: flows, floor: "line", setup: s.loadAgent}
	next := uint32(0)
	row.pass = func() pass {
		with := p()
		with.drill.First = next
		next += uint32(with.packets)
		return with
	}
	return row
}

// toAgent is packets for a service without segments.
func (s *session) toAgent(svc agentService, flags byte, packets int, want counts) pass {
	m := mode{vip: svc.vip}
	return pass{in: s.agent, drill: m.fromClient(flags), packets: packets, want: want, verdict: xdpPass}
}

// asked is packets that an LB sends to this server and then to others, by one
// function each.
func (s *session) asked(svc agentService, flags byte, packets int, want counts, functions ...wire.Function) pass {
	p := s.toAgent(svc, flags, packets, want)
	var segments []netip.Addr
	for i, f := range functions {
		segments = append(segments, sid(benchServer(i), f, 0))
	}
	inner := p.drill.Frame[wire.EthernetBytes : wire.EthernetBytes+wire.IPv6Bytes+wire.TCPBytes]
	if flags != wire.SYN {
		inner = p.drill.Frame[wire.EthernetBytes : wire.EthernetBytes+wire.IPv6Bytes+wire.TCPBytes+benchBytes/4]
	}
	packet := wire.Route{From: wire.Own(lbSelf), Segments: segments, HopLimit: wire.DefaultHopLimit}.Encap(inner)
	grown := len(packet) - len(inner)
	p.drill.Frame = framed(mac, packet)
	p.drill.Address += grown
	p.drill.Port += grown
	p.drill.Changed = wire.EthernetBytes + grown + 8 // to the hop limit
	return p
}

// take makes the agent have flows of a service that waits for the LB's word.
func (s *session) take(svc agentService, first, n uint32, inserted bool) error {
	p := s.asked(svc, wire.SYN, int(n), counts{"accept_force": 1}, wire.ConnectForce)
	if inserted {
		m := mode{vip: svc.vip}
		p.drill = m.fromClient(wire.SYN)
		offer := wire.Route{From: wire.Own(lbSelf), Segments: []netip.Addr{sid(benchServer(0), wire.ConnectForce, 0)}}
		packet := offer.Insert(p.drill.Frame[wire.EthernetBytes:][:wire.IPv6Bytes+wire.TCPBytes])
		p.drill.Frame = framed(mac, packet)
		p.drill.Port += len(packet) - wire.IPv6Bytes - wire.TCPBytes
		p.drill.Changed = 160
	}
	p.drill.First = first
	return s.untimed(p)
}

// own makes the agent have flows 0 to n-1 that the LB knows of.
func (s *session) own(n uint32) error {
	for s.agent.known < n {
		first := s.agent.known
		count := min(n-first, agentPiece)
		if err := s.take(agentTaking, first, count, false); err != nil {
			return err
		}
		p := s.asked(agentTaking, wire.ACK, int(count), counts{"established": 1, "acknowledged": 1, "steered": 1}, wire.AckStickiness)
		p.drill.First = first
		if err := s.untimed(p); err != nil {
			return err
		}
		s.agent.known += count
	}
	return nil
}

// agentSteerRow is data of known flows, each seen less than a second ago.
func (s *session) agentSteerRow(flows int) *benchRow {
	row := &benchRow{program: "agent", mode: "hunt", kind: "steer", flows: flows, floor: "line"}
	row.setup = func() error {
		if err := s.loadAgent(); err != nil {
			return err
		}
		return s.own(uint32(flows))
	}
	data := func(packets int, random uint32) pass {
		p := s.asked(agentTaking, wire.ACK, packets, counts{"steered": 1}, wire.AckStickiness)
		p.drill.Flows = random
		return p
	}
	row.prepare = func() error { return s.untimed(data(flows, 0)) }
	row.pass = func() pass { return data(packets, uint32(flows)) }
	return row
}

// establishedRow is the first packet of each client after the SYN-ACK.
func (s *session) establishedRow(flows int) *benchRow {
	row := &benchRow{program: "agent", mode: "hunt", kind: "established", flows: flows, floor: "line", setup: s.loadAgent}
	first, n := uint32(agentFlows), parts*flows // those before are known for good
	row.prepare = func() error {
		answers := s.fromAgent(agentTaking, wire.SYN|wire.ACK, n, counts{"signal_create": 1})
		answers.drill.First, answers.drill.Changed, answers.drill.Once = first, 160, true
		return errors.Join(s.take(agentTaking, first, uint32(n), false), s.untimed(answers))
	}
	row.pass = func() pass {
		p := s.asked(agentTaking, wire.ACK, n, counts{"established": 1, "acknowledged": 1, "steered": 1}, wire.AckStickiness)
		p.drill.First = first
		return p
	}
	row.cleanup = func() error { // the server resets them
		p := s.fromAgent(agentTaking, wire.RST|wire.ACK, n, counts{"signal_remove": 1})
		p.drill.First, p.drill.Changed, p.drill.Once = first, 160, true
		if err := s.untimed(p); err != nil {
			return err
		}
		swept, err := s.agent.SweepAt(traffic.Monotonic() + time.Second) // none of them is of now
		if err == nil && swept.Removed < uint64(n) {
			err = fmt.Errorf("sweep: %d of %d flows were removed", swept.Removed, n)
		}
		first += uint32(n)
		return err
	}
	return row
}

// fromAgent is a service's answers on their way out.
func (s *session) fromAgent(svc agentService, flags byte, packets int, want counts) pass {
	a := segment{client: benchClient(6), vip: svc.vip, outward: true, flags: flags, seq: away, ack: isn + 1}
	if flags&wire.SYN == 0 {
		a.seq, a.payload = away+1, benchBytes/4
	}
	address, port := a.atClient()
	return pass{
		in: agentOut{s.agent.Out(), s.agent}, packets: packets, want: want, verdict: tcUnspec,
		drill: inkernel.Drill{Step: inkernel.Step{
			Frame: framed(mac, a.packet()), Address: wire.EthernetBytes + address, Port: wire.EthernetBytes + port,
		}},
	}
}

// notOursOutRow is packets of no service.
func (s *session) notOursOutRow() *benchRow {
	row := s.agentRow("hunt", "egress-not-ours", 1, func() pass {
		return s.fromAgent(agentUnserved, wire.ACK, packets, counts{"out_not_ours": 1})
	})
	row.loop = "loop-egress"
	return row
}

// directOutRow is data of flows that the LB knows of.
func (s *session) directOutRow(flows int) *benchRow {
	row := s.agentSteerRow(flows)
	row.kind, row.prepare = "egress-direct", nil
	row.pass = func() pass {
		p := s.fromAgent(agentTaking, wire.ACK, packets, counts{"out_direct": 1})
		p.drill.Flows = uint32(flows)
		return p
	}
	return row
}

// waitOutRow is SYN-ACKs, each in a signal. An outer header can be put on a packet
// of the kernel's once only, so with it each has a call of its own.
func (s *session) waitOutRow(mode string, svc agentService, flows int, once bool) *benchRow {
	row := &benchRow{program: "agent", mode: mode, kind: "egress-wait", flows: flows, floor: "line", setup: s.loadAgent}
	if once {
		row.loop = "loop-egress-once"
	}
	first := uint32(0) // the agent still has those of the run before
	row.prepare = func() error {
		first += uint32(flows)
		return s.take(svc, first, uint32(flows), svc == agentIn)
	}
	row.pass = func() pass {
		p := s.fromAgent(svc, wire.SYN|wire.ACK, packets, counts{"signal_create": 1})
		p.drill.Flows, p.drill.First = uint32(flows), first
		p.drill.Changed, p.drill.Once = 160, once
		if once {
			p.packets = benchOnce
		}
		return p
	}
	return row
}
