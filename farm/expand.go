package farm

import (
	"fmt"
	"net/netip"
	"slices"

	"proffer/config"
	"proffer/topo"
)

// bound is a service at an address and port, as the daemons serve it.
type bound struct {
	of      *Service
	vip     topo.VIP
	members []int // of the service's, in the order of its servers
}

// count is how many addresses and ports a service has; any port counts as one.
func (s *Service) count() (n int) {
	for _, p := range s.Ports {
		switch {
		case p.Any():
			n++
		case p.Low > 0:
			n += int(p.High-p.Low) + 1
		}
	}
	return n * len(s.Addrs)
}

// bounds lists the services of a farm, each at each of its addresses and ports.
func (f *Farm) bounds() (all []bound) {
	for i := range f.Services {
		s := &f.Services[i]
		for _, addr := range s.Addrs {
			for _, p := range s.Ports {
				for port := int(p.Low); 0 < port && port <= int(p.High) && !p.Any(); port++ {
					all = append(all, bound{of: s, vip: topo.VIP{Addr: addr, Port: uint16(port), Protocol: p.Protocol}})
				}
			}
		}
	}
	return all
}

// name is the service's, with what tells apart its addresses and ports.
func (b *bound) name() string {
	switch s := b.of; {
	case s.count() == 1:
		return s.Name
	case len(s.Addrs) > 1:
		return s.Name + ":" + config.VIPName(b.vip)
	case b.vip.Protocol == topo.UDP:
		return fmt.Sprintf("%s:udp:%d", s.Name, b.vip.Port)
	default:
		return fmt.Sprintf("%s:%d", s.Name, b.vip.Port)
	}
}

// service is that of an LB. Members without a node are left out.
func (f *Farm) service(b *bound) topo.Service {
	svc := b.of.Service
	svc.Name, svc.VIP, svc.Version = b.name(), b.vip, f.Version
	if b.of.Pool > 0 {
		svc.Version = b.of.Pool - 1
	}
	svc.Servers, b.members = []topo.Server{}, nil
	for i := range b.of.Members {
		m := &b.of.Members[i]
		if n := f.Node(m.Node); n != nil {
			svc.Servers, b.members = append(svc.Servers, n.server(m, b.vip.Addr)), append(b.members, i)
		}
	}
	svc.Via, svc.History = slices.Clone(svc.Via), cloneOf(svc.History)
	if b.of.Recovery == usual {
		config.CompleteRecovery(&svc)
	} else {
		svc.Recovery = topo.Recovery(b.of.Recovery - 1)
	}
	return svc
}

func cloneOf(history []topo.Version) (all []topo.Version) {
	for _, v := range history {
		all = append(all, topo.Version{Version: v.Version, Servers: slices.Clone(v.Servers)})
	}
	return all
}

// server is a node as an LB has it for a VIP.
func (n *Node) server(m *Member, vip netip.Addr) topo.Server {
	s := topo.Server{Name: n.Name, Delivery: n.delivery(vip), Weight: n.Weight}
	if m.Weight >= 0 {
		s.Weight = m.Weight
	}
	if s.Delivery.SRv6() {
		s.Locator = n.Locator
	} else {
		s.Address = n.Server.Addr
	}
	if s.Delivery.Tunnel() {
		s.VNI, s.MAC = n.VNI, n.MAC
	}
	return s
}

// delivery is the first that takes packets for an address, or the first.
func (n *Node) delivery(vip netip.Addr) topo.Delivery {
	for _, d := range n.Deliveries {
		if d.Takes(vip) {
			return d
		}
	}
	return n.Deliveries[0]
}

// offering is the service as the agent of a member has it.
func (b *bound) offering(m *Member) topo.Offering {
	o := m.Accepts
	o.Name, o.VIP, o.Wire = b.name(), b.vip, b.of.Wire
	if !o.Acceptance.Adapts() {
		o.Window, o.Epsilon = 0, 0
	}
	l := o.Load()
	if !l.From() {
		o.From = ""
	}
	if !l.Of() {
		o.Of = ""
	}
	if !l.File() {
		o.Page, o.PageOwner, o.PageGroup, o.PageMode = "", "", "", 0
	}
	if o.Owner != topo.Table {
		o.MAC = topo.MAC{}
	}
	return o
}
