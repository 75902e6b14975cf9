package lb

import (
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"

	"proffer/dataplane/internal/plane"
	"proffer/dataplane/objects"
	"proffer/topo"
)

// writeTunnels writes the far ends of the servers' tunnels, before the records that lead there.
func (l *LB) writeTunnels(all []topo.Server, source netip.Addr) error {
	want := map[uint32]objects.LBTunnel{}
	for i := range all {
		if s := &all[i]; s.Delivery.Tunnel() {
			want[l.numbers.of(*s)] = tunnelTo(s, source)
		}
	}
	if err := plane.Update(l.objs.Tunnels, l.tunnels, want); err != nil {
		return fmt.Errorf("write the servers' tunnels: %w", err)
	}
	return nil
}

// dropTunnels removes the tunnels of all other servers.
func (l *LB) dropTunnels(keep []topo.Server) error {
	kept := map[uint32]objects.LBTunnel{}
	for i := range keep {
		if n := l.numbers.of(keep[i]); keep[i].Delivery.Tunnel() {
			kept[n] = l.tunnels[n]
		}
	}
	if _, err := plane.Prune(l.objs.Tunnels, l.tunnels, kept); err != nil {
		return fmt.Errorf("drop tunnels of servers: %w", err)
	}
	return nil
}

// tunnelTo is the record of a server's tunnel.
func tunnelTo(s *topo.Server, source netip.Addr) objects.LBTunnel {
	var vni [4]byte
	binary.BigEndian.PutUint32(vni[:], uint32(s.VNI)<<8) // RFC 7348 §5: 8 bits reserved
	t := objects.LBTunnel{Mac: s.MAC, VniBe: binary.NativeEndian.Uint32(vni[:])}
	t.To.In6U.U6Addr8 = s.Address.As16()
	if s.Address.Is4() && source.IsValid() {
		t.From.In6U.U6Addr8 = source.As16()
	}
	return t
}

// sourceOf is the IPv4 address that a link's tunnels come from: its first. Invalid: it has none.
func sourceOf(dev *net.Interface) netip.Addr {
	addrs, _ := dev.Addrs() // an error is as none: the servers have no way
	for _, a := range addrs {
		if n, is := a.(*net.IPNet); is && n.IP.To4() != nil && n.IP.IsGlobalUnicast() {
			return netip.AddrFrom4([4]byte(n.IP.To4()))
		}
	}
	return netip.Addr{}
}
