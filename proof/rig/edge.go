package rig

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/cilium/ebpf"

	"proffer/dataplane"
	"proffer/wire"
)

// RunCounted passes a frame through a program of a plane, and sees which of its counters moved.
func RunCounted(t testing.TB, plane interface {
	Counters() ([]dataplane.Counter, error)
}, program *ebpf.Program, frame []byte, seen map[string]bool) Outcome {
	t.Helper()
	counters := func() []dataplane.Counter {
		all, err := plane.Counters()
		if err != nil {
			t.Fatal(err)
		}
		return all
	}
	before := counters()
	o := ebpf.RunOptions{Data: frame, DataOut: make([]byte, len(frame)+256)}
	action, err := program.Run(&o)
	if err != nil {
		t.Fatalf("run %s on %d bytes: %v", program, len(frame), err)
	}
	out := Outcome{Action: action, Frame: o.DataOut}
	for i, c := range counters() {
		if c.Value != before[i].Value {
			out.Reasons = append(out.Reasons, c.Name)
			seen[c.Name] = true
		}
	}
	slices.Sort(out.Reasons)
	return out
}

// edgeNets are the networks of the edge's clients.
var edgeNets = []netip.Prefix{netip.MustParsePrefix("10.1.0.0/16"), netip.MustParsePrefix("2001:db8:1::/48")}

// Around puts a packet into a tunnel. An LB tells its direction by the link that it came by: inward if its
// source is not of the edge, of its clients or its public addresses.
func Around(w wire.Tunnel, packet []byte, public ...netip.Addr) []byte {
	var source netip.Addr
	switch {
	case len(packet) >= wire.IPv6Bytes && packet[0]>>4 == 6:
		source = netip.AddrFrom16([16]byte(packet[8:]))
	case len(packet) >= wire.IPv4Bytes:
		source = netip.AddrFrom4([4]byte(packet[12:]))
	}
	ours := slices.Contains(public, source) || slices.ContainsFunc(edgeNets, func(p netip.Prefix) bool { return p.Contains(source) })
	w.Inward = w.Inward || !ours
	return w.Around(packet)
}

// Back is the same packet's tunnel to the LB.
func Back(w wire.Tunnel) wire.Tunnel {
	w.LinkTo, w.LinkFrom, w.From, w.To = w.LinkFrom, w.LinkTo, w.To, w.From
	w.Instance.Update = true
	return w
}
