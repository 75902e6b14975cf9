package bench

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	inkernel "proffer/dataplane/bench"
	"proffer/lab/farmrun"
	"proffer/topo"
	"proffer/wire"
)

// edgeBench is an edge LB, and a datapath node that has no functions, in benches.
type edgeBench struct {
	lb    *inkernel.Edge
	node  *inkernel.EdgeNode
	known map[string]uint32 // flows of each mode at the LB
	link  topo.MAC          // to nodes
}

// edgeMode is a family, of packets and of the tunnels around them; each has a service.
type edgeMode struct {
	name    string
	service int
	clients netip.Prefix
	remote  netip.Addr // host in the world
	own     netip.Prefix
	far     netip.Addr // other end of the tunnel
	gateway netip.Addr
}

func edgeModes() []edgeMode {
	return []edgeMode{
		{"", 1, netip.MustParsePrefix("2001:db8:c::/48"), netip.MustParseAddr("2001:db8:f::1"), netip.MustParsePrefix("fd00:9::1/64"), netip.MustParseAddr("fd00:9::2"), netip.MustParseAddr("fd00:9::fe")},
		{"-ipv4", 2, netip.MustParsePrefix("198.18.0.0/15"), netip.MustParseAddr("203.0.113.1"), netip.MustParsePrefix("192.0.2.1/24"), netip.MustParseAddr("192.0.2.2"), netip.MustParseAddr("192.0.2.254")},
	}
}

// client is the mode's client with a remote host as its server.
func (m edgeMode) client() *mode { return &mode{vip: m.remote} }

const (
	edgeCores   = 8
	edgeLink    = "benchnodes"
	edgeServer  = 1
	xdpRedirect = 4
)

// edgeRows are all rows of the edge.
func (s *session) edgeRows() (rows []*benchRow) {
	for _, m := range edgeModes() {
		for _, n := range s.Flows {
			if n <= othersAtMost {
				rows = append(rows, s.edgeSteerRow(m, n))
			}
		}
		rows = append(rows, s.edgeBeginRow(m), s.edgeNodeRow(m))
	}
	return rows
}

// loadEdge gives the thread's namespace the links of the edge, once, with an LB and a node there.
func (s *session) loadEdge() (err error) {
	if s.edge != nil {
		return nil
	}
	e := &edgeBench{known: map[string]uint32{}}
	if e.link, err = edgePlace(); err != nil {
		return err
	}
	if e.lb, err = newEdgeLB(len(edgeModes())*min(s.most(), othersAtMost)*5/4 + 4096); err != nil {
		return err
	}
	s.open = append(s.open, e.lb)
	cfg := &topo.Datapath{Server: edgeServer, Link: edgeLink, Cores: edgeCores, Idle: time.Hour, Linger: time.Hour}
	for _, m := range edgeModes() {
		cfg.LBs = append(cfg.LBs, m.far)
		cfg.Clients = append(cfg.Clients, m.clients)
		cfg.Chains = append(cfg.Chains, topo.Chain{Service: m.service, Functions: []topo.Function{topo.Cost{Each: 1}}})
	}
	if e.node, err = inkernel.NewEdgeNode(cfg); err != nil {
		return err
	}
	s.open = append(s.open, e.node)
	s.edge = e
	return nil
}

// edgePlace makes the link to nodes, with a router behind it that has all routes.
func edgePlace() (mac topo.MAC, err error) {
	err = netlink.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: edgeLink, MTU: 1600}, PeerName: edgeLink + "peer"})
	if err != nil {
		return mac, fmt.Errorf("add link %s: %w", edgeLink, err)
	}
	var link netlink.Link
	for _, name := range []string{edgeLink + "peer", edgeLink} {
		if link, err = netlink.LinkByName(name); err == nil {
			err = netlink.LinkSetUp(link)
		}
		if err != nil {
			return mac, fmt.Errorf("set %s up: %w", name, err)
		}
	}
	router, index := net.HardwareAddr{2, 0, 0, 0, 0, 0xfe}, link.Attrs().Index
	for _, m := range edgeModes() {
		own := &net.IPNet{IP: m.own.Addr().AsSlice(), Mask: net.CIDRMask(m.own.Bits(), m.own.Addr().BitLen())}
		err := errors.Join(
			os.WriteFile(fmt.Sprintf("/proc/sys/net/ipv%d/conf/all/forwarding", m.client().family()), []byte("1"), 0),
			netlink.AddrAdd(link, &netlink.Addr{IPNet: own, Flags: unix.IFA_F_NODAD}),
			netlink.NeighAdd(&netlink.Neigh{LinkIndex: index, IP: m.gateway.AsSlice(), HardwareAddr: router, State: netlink.NUD_PERMANENT}),
			netlink.RouteAdd(&netlink.Route{LinkIndex: index, Gw: m.gateway.AsSlice()}))
		if err != nil {
			return mac, fmt.Errorf("make %s a way to the world: %w", edgeLink, err)
		}
	}
	return topo.MAC(link.Attrs().HardwareAddr), nil
}

// newEdgeLB loads an LB with a node a family, and room for so many flows.
func newEdgeLB(entries int) (*inkernel.Edge, error) {
	cfg := &topo.EdgeLB{
		Clients: device, World: device + "peer", Balance: topo.RoundRobin, Key: farmrun.CandidateKey,
		Flows: topo.FlowTable{Entries: entries, Idle: time.Hour},
	}
	for i, m := range edgeModes() {
		cfg.Nodes = append(cfg.Nodes, topo.EdgeNode{Server: edgeServer + i, Addr: m.far, Link: edgeLink, Cores: edgeCores})
		service := topo.EdgeService{Number: m.service, Prefixes: []netip.Prefix{m.clients}}
		for core := range edgeCores {
			service.Instances = append(service.Instances, topo.EdgeInstance{Server: edgeServer + i, Core: core, Weight: 1})
		}
		cfg.Services = append(cfg.Services, service)
	}
	lb, err := inkernel.NewEdge(cfg)
	if err != nil {
		return nil, err
	}
	for i := range edgeModes() {
		if err := lb.SetNextHop(edgeServer+i, topo.MAC{2, 0, 0, 0, 1, byte(i)}); err != nil {
			return nil, errors.Join(err, lb.Close())
		}
	}
	return lb, nil
}

// toEdge is packets of clients at an LB.
func (m edgeMode) toEdge(in *inkernel.Edge, flags uint8, packets int, want counts) pass {
	client := m.client()
	return pass{in: in, drill: client.fromClient(flags), packets: packets, want: want, verdict: xdpRedirect}
}

// begin is the first packets of flows at an LB: another segment would be asked about.
func (m edgeMode) begin(in *inkernel.Edge, packets int) pass {
	return m.toEdge(in, wire.SYN, packets, counts{"flow_begun": 1, "steer": 1})
}

// edgeSteerRow is data of known flows.
func (s *session) edgeSteerRow(m edgeMode, flows int) *benchRow {
	row := &benchRow{program: "edge", mode: "lb" + m.name, kind: "steer", flows: flows, floor: "line"}
	row.setup = func() error {
		if err := s.loadEdge(); err != nil {
			return err
		}
		first := s.edge.known[m.name]
		if first >= uint32(flows) {
			return nil
		}
		p := m.begin(s.edge.lb, flows-int(first))
		p.drill.First = first
		s.edge.known[m.name] = uint32(flows)
		return s.untimed(p)
	}
	row.pass = func() pass {
		p := m.toEdge(s.edge.lb, wire.ACK, packets, counts{"steer": 1})
		p.drill.Flows = uint32(flows)
		return p
	}
	return row
}

// edgeBeginRow is the first packets of flows, in a table that is empty before each run.
func (s *session) edgeBeginRow(m edgeMode) *benchRow {
	row := &benchRow{program: "edge", mode: "lb" + m.name, kind: "begin", flows: benchMade, floor: "line", beside: othersAtMost, setup: s.loadEdge}
	var lb *inkernel.Edge
	row.prepare = func() (err error) {
		lb, err = newEdgeLB(insertEntries)
		return err
	}
	row.pass = func() pass { return m.begin(lb, benchMade) }
	row.cleanup = func() error { return lb.Close() }
	return row
}

// edgeNodeRow is packets on their way through a node that has no functions: out of the tunnel, and by
// the kernel's routes to the world.
func (s *session) edgeNodeRow(m edgeMode) *benchRow {
	row := &benchRow{program: "edge", mode: "node" + m.name, kind: "through", flows: min(fewFlows, s.most()), floor: "line", setup: s.loadEdge}
	client := m.client()
	data := segment{client: benchClient(client.family()), vip: m.remote, flags: wire.ACK, seq: isn + 1, ack: away + 1, payload: benchBytes / 4}
	row.pass = func() pass {
		tunnel := wire.Tunnel{
			LinkTo: s.edge.link, From: m.far, To: m.own.Addr(), Flow: 1,
			Instance: wire.Instance{Server: edgeServer, Core: edgeCores - 1, Service: m.service},
		}
		address, port := data.atClient()
		frame := tunnel.Around(data.packet())
		outer := len(frame) - len(data.packet())
		p := pass{in: s.edge.node, packets: packets, want: counts{"direct": 1}, verdict: xdpRedirect}
		p.drill = inkernel.Drill{
			Step:    inkernel.Step{Frame: append(frame, make([]byte, max(benchBytes-len(frame), 0))...), Address: outer + address, Port: outer + port},
			Changed: outer + data.ipBytes(), // to the hop limit and its checksum
			Flows:   uint32(row.flows),
		}
		return p
	}
	return row
}
