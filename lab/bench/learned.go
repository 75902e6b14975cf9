package bench

import (
	"errors"
	"fmt"
	"net/netip"
	"time"

	inkernel "proffer/dataplane/bench"
	"proffer/lab/farmrun"
	"proffer/table"
	"proffer/topo"
	"proffer/wire"
)

// Whole connections of services that keep flows, by hash, dealt, and learned: a SYN, a packet of data
// and a FIN, all of the client (HLB Figure 24b).

// learnedServers are the sizes of the farms.
var learnedServers = []int{16, 128, topo.MaxSeats}

// shortModes are the modes of such connections. The paper holds learned to ecmp.
var shortModes = []topo.Dispatch{topo.Single, topo.Ecmp, topo.Learned}

const lbLearned = "learned" // an LB of such services alone, of which closed flows are swept at once

// learnedMode is a service of n servers.
func learnedMode(d topo.Dispatch, n int) mode {
	return mode{fmt.Sprint(d, "-", n), d, topo.Encap, netip.MustParseAddr(fmt.Sprintf("2001:db8:f:2::%x:%x", uint8(d), n))}
}

// shorts are the kinds of such connections: alone, and among others.
func shorts() []connection {
	return []connection{{name: "short"}, {name: "short-apart", apart: apart}}
}

// learnedRows stand beside each other, mode by mode.
func (s *session) learnedRows() (rows []*benchRow) {
	for _, n := range learnedServers {
		for _, c := range shorts() {
			for _, d := range shortModes {
				rows = append(rows, s.shortRow(learnedMode(d, n), c))
			}
		}
	}
	return rows
}

// shortStages are the packets of a connection in their order.
func shortStages(m mode, c connection) []stage {
	all := []stage{
		{m.fromClient(wire.SYN).Step, isBegun},
		{m.fromClient(wire.ACK).Step, isEstablished},
		{m.fromClient(wire.FIN | wire.ACK).Step, counts{"steer": 1}},
	}
	for i := range all {
		all[i].Ahead = (len(all) - 1 - i) * c.apart
	}
	return all
}

// shortRow is such connections, in turn, each another flow.
func (s *session) shortRow(m mode, c connection) *benchRow {
	const packets = 3
	together := benchMade / packets
	row := s.lbRow(m, c.name, together)
	row.packets, row.loop = packets, connection{}.loop()
	var lb *lbBench
	first := uint32(0)
	stages := shortStages(m, c)
	row.setup = func() (err error) {
		lb, err = s.learnedLB()
		return err
	}
	row.prepare = func() error {
		first = lb.unused(together + stages[0].Ahead)
		return s.beginStages(lb, c.name, stages, first)
	}
	row.pass = func() pass {
		p := pass{in: lb, packets: together * packets, want: counts{}, verdict: xdpTX}
		p.drill = inkernel.Drill{Step: stages[0].Step, Changed: 160, First: first}
		for _, stage := range stages[1:] {
			p.drill.After = append(p.drill.After, stage.Step)
		}
		for _, stage := range stages {
			for name, n := range stage.want {
				p.want[name] += n / packets
			}
		}
		return p
	}
	row.cleanup = func() error {
		time.Sleep(600 * time.Millisecond) // until the entries have expired, but for embryonic ones
		_, err := lb.Sweep()
		return err
	}
	return row
}

// learnedLB is the LB of those services.
func (s *session) learnedLB() (*lbBench, error) {
	if l := s.lbs[lbLearned]; l != nil {
		return l, nil
	}
	var services []topo.Service
	hops := topo.NextHops{netip.PrefixFrom(netip.IPv6Unspecified(), 0): {2, 0, 0, 0, 0, 0xfe}}
	for _, n := range learnedServers {
		var servers []topo.Server
		for i := range n {
			servers = append(servers, topo.Server{Name: fmt.Sprint("s", i), Locator: benchServer(i), Weight: 1})
			hops[benchServer(i)] = topo.MAC{2, 0, 0, 0, 1, byte(i)}
		}
		for _, d := range shortModes {
			m := learnedMode(d, n)
			services = append(services, topo.Service{
				Name: m.name, VIP: topo.VIP{Addr: m.vip, Port: port}, Dispatch: d,
				Choices: 1, Buckets: table.DefaultBuckets, Servers: servers,
			})
		}
	}
	cfg := &topo.LB{
		Node:         topo.Node{Name: "lb", Locator: lbSelf, Interface: device},
		CandidateKey: farmrun.CandidateKey,
		Flows:        topo.FlowTable{Entries: insertEntries, Idle: 1, Linger: 1},
		Services:     services,
	}
	l, err := inkernel.NewLB(cfg, 0)
	if err != nil {
		return nil, err
	}
	if err := l.SetNextHops(hops); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	b := &lbBench{l, nil, cfg, hops, map[string]uint32{}, 1 << 29, map[wire.Function][]uint64{}}
	s.lbs[lbLearned] = b
	s.open = append(s.open, b)
	return b, nil
}
