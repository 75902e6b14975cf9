package dataplane

import (
	"net/netip"
	"testing"

	"proffer/topo"
)

// chained returns VIPs whose services all have the same first slot.
func chained(n int) (vips []topo.VIP) {
	var first uint32
	for port := uint16(1); len(vips) < n; port++ {
		for host := range 256 {
			v := topo.VIP{Addr: netip.AddrFrom16([16]byte{0x20, 1, 0xd, 0xb8, 15: byte(host)}), Port: port}
			key := serviceKey(v)
			if len(vips) == 0 {
				first = firstPlace(&key)
			}
			if firstPlace(&key) == first && len(vips) < n {
				vips = append(vips, v)
			}
		}
	}
	return vips
}

// TestServiceTable: whatever is put into the table of services and taken out of it, and
// in whatever order, packets find what is there and nothing else; also where many
// hash to one slot. A chain that cannot be longer refuses one more.
func TestServiceTable(t *testing.T) {
	r, rng := newLBRig(t, hits{}, hunting(2, 4)), random(t)
	vips := chained(mostProbes + 1)
	record := func(v topo.VIP) lbService {
		svc := hunting(2, 4)
		svc.VIP = v
		return serviceRecord(&svc, r.services[r.cfg.Services[0].VIP].record.Table, 1, 1500)
	}
	there := map[topo.VIP]bool{}
	found := func() {
		t.Helper()
		for _, v := range vips {
			p := inward(v.Port, ack)
			p.dst = netip.AddrPortFrom(v.Addr, v.Port)
			if passed := r.run(t, p.frame()).action == xdpPass; passed == there[v] {
				t.Fatalf("%d services of one chain: a packet for %v passed: %v", len(there), v, passed)
			}
		}
	}
	for i := range 300 {
		v := vips[rng.IntN(mostProbes)]
		if there[v] {
			r.records.delete(serviceKey(v))
			delete(there, v)
		} else if err := r.records.put(record(v)); err != nil {
			t.Fatal(err)
		} else {
			there[v] = true
		}
		if i%20 == 0 {
			found()
		}
	}
	for _, v := range vips[:mostProbes] {
		if err := r.records.put(record(v)); err != nil {
			t.Fatalf("service %v of a chain with room: %v", v, err)
		}
		there[v] = true
	}
	found()
	if err := r.records.put(record(vips[mostProbes])); err == nil {
		t.Error("a chain took one service more than a packet looks at")
	}
	found()
	for _, v := range vips[:mostProbes] {
		r.records.delete(serviceKey(v))
		delete(there, v)
	}
	found()
	used := 0
	for _, number := range r.records.slots {
		if number != noRecord {
			used++
		}
	}
	if used > 2*len(r.cfg.Services) {
		t.Errorf("%d slots are in use or were, for %d services and their VIPs", used, len(r.cfg.Services))
	}
}
