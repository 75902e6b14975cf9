package lb_test

import (
	"net/netip"
	"testing"

	"proffer/dataplane/lb"
	"proffer/dataplane/objects"
	"proffer/proof/rig"
	"proffer/topo"
	"proffer/wire"
)

// chained returns VIPs of services with the same first slot.
func chained(n int) (vips []topo.VIP) {
	var first uint32
	for port := uint16(1); len(vips) < n; port++ {
		for host := range 256 {
			v := topo.VIP{Addr: netip.AddrFrom16([16]byte{0x20, 1, 0xd, 0xb8, 15: byte(host)}), Port: port}
			key := objects.ServiceKey(v)
			if len(vips) == 0 {
				first = lb.ServiceSlot(&key)
			}
			if lb.ServiceSlot(&key) == first && len(vips) < n {
				vips = append(vips, v)
			}
		}
	}
	return vips
}

// TestServiceTable: after additions and removals in any order, packets find the services
// in the table and no others, also if many hash to one slot. A service beyond the
// longest chain is an error.
func TestServiceTable(t *testing.T) {
	r, rng := rig.NewLB(t, rig.Hits{}, rig.Hunting(2, 4)), rig.Random(t)
	vips := chained(objects.MaxProbes + 1)
	record := func(v topo.VIP) objects.LBService {
		svc := rig.Hunting(2, 4)
		svc.VIP = v
		return r.RecordFor(&svc, &r.Cfg.Services[0])
	}
	there := map[topo.VIP]bool{}
	found := func() {
		t.Helper()
		for _, v := range vips {
			p := rig.Inward(v.Port, wire.ACK)
			p.Dst = netip.AddrPortFrom(v.Addr, v.Port)
			if passed := r.Run(t, p.Frame()).Action == rig.XDPPass; passed == there[v] {
				t.Fatalf("%d services of one chain: a packet for %v passed: %v", len(there), v, passed)
			}
		}
	}
	for i := range 300 {
		v := vips[rng.IntN(objects.MaxProbes)]
		if there[v] {
			r.DeleteRecord(v)
			delete(there, v)
		} else if err := r.PutRecord(record(v)); err != nil {
			t.Fatal(err)
		} else {
			there[v] = true
		}
		if i%20 == 0 {
			found()
		}
	}
	for _, v := range vips[:objects.MaxProbes] {
		if err := r.PutRecord(record(v)); err != nil {
			t.Fatalf("service %v of a chain with room: %v", v, err)
		}
		there[v] = true
	}
	found()
	if err := r.PutRecord(record(vips[objects.MaxProbes])); err == nil {
		t.Error("a chain took one service more than a packet looks at")
	}
	found()
	for _, v := range vips[:objects.MaxProbes] {
		r.DeleteRecord(v)
		delete(there, v)
	}
	found()
	if used := r.UsedRecordSlots(); used > 2*len(r.Cfg.Services) {
		t.Errorf("%d slots are in use or were, for %d services and their VIPs", used, len(r.Cfg.Services))
	}
}
