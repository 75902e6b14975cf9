package farm

import (
	"fmt"
	"io"
	"net/netip"

	"proffer/schema"
	"proffer/topo"
)

// Begin is what a new farm is made from.
type Begin struct {
	Name                    string
	LBs, Servers, Agentless []Host
	VIPs                    []topo.VIP
}

// Host is a node before it has a role.
type Host struct {
	Name string
	Addr netip.Addr
}

// Begun is a farm with one service of all servers. Each LB and each server with an agent gets a locator of RFC 9602's
// block.
func (b *Begin) Begun() *Farm {
	f := &Farm{Name: b.Name, Version: 1}
	node := func(h Host) Node {
		return Node{Name: h.Name, Weight: 1}
	}
	s := usualService()
	for i, h := range b.LBs {
		n := node(h)
		n.LB, n.Locator = At{Addr: h.Addr}, locator(1, i+1)
		f.Nodes = append(f.Nodes, n)
	}
	for i, h := range b.Servers {
		n := node(h)
		n.Server, n.Locator, n.Deliveries = At{Addr: h.Addr}, locator(2, i+1), []topo.Delivery{topo.ByAgent}
		f.Nodes, s.Members = append(f.Nodes, n), append(s.Members, s.named(h.Name))
	}
	for _, h := range b.Agentless {
		n := node(h)
		n.Server, n.Deliveries, s.Dispatch = At{Addr: h.Addr}, []topo.Delivery{topo.ByL2}, topo.Learned
		f.Nodes, s.Members = append(f.Nodes, n), append(s.Members, s.named(h.Name))
	}
	b.bind(&s)
	f.Services = []Service{s}
	return f
}

// usualService has all defaults, and neither addresses nor servers.
func usualService() (s Service) {
	doc := &schema.Document{File: "the usual service"}
	doc.Parse([]byte("{vip: 192.0.2.1, port: 80, dispatch: hunt, servers: []}"), service(&s))
	if err := doc.Err(); err != nil {
		panic(err) // our own table is wrong
	}
	s.Name, s.Addrs, s.Ports = "web", nil, nil
	return s
}

// named is a server that accepts as the service does.
func (s *Service) named(node string) Member {
	m := s.member()
	m.Node = node
	return m
}

// bind gives a service the addresses and ports of all VIPs.
func (b *Begin) bind(s *Service) {
	addrs, ports := map[netip.Addr]bool{}, map[Port]bool{}
	for _, v := range b.VIPs {
		p := Port{Protocol: v.Protocol, Low: v.Port, High: v.Port}
		if !addrs[v.Addr] {
			s.Addrs = append(s.Addrs, v.Addr)
		}
		if !ports[p] {
			s.Ports = append(s.Ports, p)
		}
		addrs[v.Addr], ports[p] = true, true
	}
}

// locator is the /64 of a node: 5f00:0:KIND:NUMBER::/64.
func locator(kind, number int) netip.Prefix {
	return netip.MustParsePrefix(fmt.Sprintf("5f00:0:%x:%x::/64", kind, number))
}

// NewSecrets makes the keys of a farm.
func NewSecrets(name string, random io.Reader) (*Secrets, error) {
	s := &Secrets{Farm: name, Report: new(topo.Key), Signals: []topo.SignalKey{{ID: 1}}}
	for _, k := range [][]byte{s.Candidate[:], s.Flow[:], s.Report[:], s.Signals[0].Farm[:], s.Signals[0].Server[:]} {
		if _, err := io.ReadFull(random, k); err != nil {
			return nil, fmt.Errorf("make a key: %w", err)
		}
	}
	return s, nil
}
