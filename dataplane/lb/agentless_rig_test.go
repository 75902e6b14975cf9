package lb_test

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"testing"

	"github.com/vishvananda/netlink"

	"proffer/policy"
	"proffer/proof/rig"
	"proffer/table"
	"proffer/topo"
	"proffer/wire"
)

// The servers without agents of these tests.
const vni = 0x123456

var (
	deviceMAC = topo.MAC{2, 0, 0, 0, 0, 1}
	lbAddr4   = netip.MustParseAddr("10.0.0.1")
)

// serverAddr is the address of server i.
func serverAddr(i int, four bool) netip.Addr {
	if four {
		return netip.AddrFrom4([4]byte{10, 0, 1, byte(i)})
	}
	return netip.AddrFrom16([16]byte{0x20, 1, 0xd, 0xb8, 0, 5, 15: byte(i)})
}

// by gives all servers of a service one delivery, at addresses of a family if they have any.
func by(d topo.Delivery, four bool) func(*topo.Service) {
	return func(s *topo.Service) {
		for i := range s.Servers {
			server := &s.Servers[i]
			if server.Delivery = d; d.SRv6() {
				continue
			}
			server.Locator, server.Address = netip.Prefix{}, serverAddr(i, four)
			if d.Tunnel() {
				server.VNI, server.MAC = vni, deviceMAC
			}
		}
	}
}

// newAgentless loads an LB with an IPv4 address on its link, and with all servers' neighbours.
func newAgentless(t *testing.T, seen rig.Hits, services ...topo.Service) *rig.LB {
	t.Helper()
	rig.Enter(t)
	link, err := netlink.LinkByName(rig.Device)
	if err == nil {
		err = netlink.AddrAdd(link, &netlink.Addr{IPNet: netlink.NewIPNet(lbAddr4.AsSlice())})
	}
	if err != nil {
		t.Fatal(err)
	}
	r := rig.LoadLB(t, seen, rig.LBConfig(services...))
	onLink(t, r)
	return r
}

// onLink gives the LB the neighbours on its link, each server as itself.
func onLink(t *testing.T, r *rig.LB) {
	t.Helper()
	hops := topo.NextHops{netip.PrefixFrom(rig.ClientAddr, 128): rig.RouterMAC, netip.PrefixFrom(rig.Client4, 32): rig.RouterMAC}
	for i := range 8 {
		hops[rig.ServerLocator(i)] = rig.HopMAC(i)
		for _, four := range []bool{false, true} {
			a := serverAddr(i, four)
			hops[netip.PrefixFrom(a, a.BitLen())] = rig.HopMAC(i)
		}
	}
	if err := r.SetNextHops(hops); err != nil {
		t.Fatal(err)
	}
}

// chosen is the number of a flow's server.
func chosen(t *testing.T, r *rig.LB, svc int, p rig.Packet) int {
	t.Helper()
	s := &r.Cfg.Services[svc]
	tab, err := table.Of(s, s.Servers)
	if err != nil {
		t.Fatal(err)
	}
	return int(tab.Lookup(policy.NewDigestKey(rig.CandidateKeyOfTests).Digest(p.Flow()))[0])
}

// delivered is the frame that must leave for a packet.
func delivered(p rig.Packet, d topo.Delivery, server int, four bool) []byte {
	hop := rig.HopMAC(server)
	switch {
	case d.Row().Seg6 && p.Src.Addr().Is4():
		return rig.ToOne(p, server, wire.Deliver, wire.ArgumentIpv4)
	case d.SRv6():
		return rig.ToOne(p, server, wire.Deliver, wire.ArgumentIpv6)
	case !d.Tunnel():
		p.Hop--
		return wire.Frame(hop, rig.HereMAC, p.Ip())
	}
	label := binary.BigEndian.Uint32(rig.ToOne(p, 0, wire.Deliver, 0)[wire.EthernetBytes:]) & 0xfffff
	p.Hop--
	inner := wire.Frame(deviceMAC, rig.HereMAC, p.Ip())
	v := binary.BigEndian.AppendUint32(nil, 0x08000000)
	v = binary.BigEndian.AppendUint32(v, vni<<8)
	outer := wire.IP{Source: wire.Untagged(rig.LbLocator, p.Flow()), Destination: serverAddr(server, four), Class: p.Class, HopLimit: 64, Label: label}
	if four {
		outer.Source, outer.Label = lbAddr4, 0
	}
	b := outer.UDP(uint16(0xc000|label&0x3fff), 4789, append(v, inner...))
	udp := b[len(b)-len(inner)-16:]
	if four {
		clear(udp[6:8]) // no checksum
	}
	return wire.Frame(hop, rig.HereMAC, b)
}

// comparable clears the part that the programs choose at random: the identification of an outer IPv4 header.
func comparable(frame []byte) []byte {
	if frame[12] == 8 && frame[14+9] == 17 {
		ip := frame[14:34]
		clear(ip[4:8])
		rig.Resum(ip)
	}
	return frame
}

type deliveryCase struct {
	by      topo.Delivery
	four    bool // address of the server
	vip4    bool
	counter string
	header  int
}

func deliveryCases() []deliveryCase {
	return []deliveryCase{
		{topo.ByDT6, false, false, "by_seg6", 40},
		{topo.ByDX6, false, false, "by_seg6", 40},
		{topo.ByDX4, false, true, "by_seg6", 40},
		{topo.ByL2, false, false, "by_l2", 0},
		{topo.ByL2, true, false, "by_l2", 0},
		{topo.ByL2, false, true, "by_l2", 0},
		{topo.ByL2, true, true, "by_l2", 0},
		{topo.ByVXLAN, false, false, "by_vxlan", 70},
		{topo.ByVXLAN, true, false, "by_vxlan", 50},
		{topo.ByVXLAN, false, true, "by_vxlan", 70},
		{topo.ByVXLAN, true, true, "by_vxlan", 50},
	}
}

func (c deliveryCase) String() string {
	return fmt.Sprintf("%v, IPv4 address %v, IPv4 VIP %v", c.by, c.four, c.vip4)
}

// services are one that keeps flows and one that does not.
func (c deliveryCase) services() []topo.Service {
	single, stateless := kept(4, by(c.by, c.four)), rig.Service(82, topo.Stateless, 1, 4)
	by(c.by, c.four)(&stateless)
	if c.vip4 {
		rig.Over4(&single)
		rig.Over4(&stateless)
	}
	return []topo.Service{single, stateless}
}

// packet is one to a service of the case.
func (c deliveryCase) packet(port uint16, flags byte) rig.Packet {
	p := rig.Inward(port, flags)
	p.Class = 0xb8
	if flags&wire.SYN == 0 {
		p.Seq++
	}
	if c.vip4 {
		return rig.OverIPv4(p)
	}
	return p
}
