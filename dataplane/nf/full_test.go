package nf_test

import (
	"encoding/binary"
	"errors"
	"testing"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"proffer/proof/rig"
	"proffer/topo"
)

// fill takes all the room that a map still has, with keys that no packet has.
func fill(t *testing.T, m *ebpf.Map) {
	t.Helper()
	key, value := make([]byte, m.KeySize()), make([]byte, m.ValueSize())
	for i := range m.MaxEntries() + 1 {
		for at := range key {
			key[at] = 0xff
		}
		binary.LittleEndian.PutUint32(key, i)
		switch err := m.Update(key, value, ebpf.UpdateAny); {
		case errors.Is(err, unix.E2BIG):
			return
		case err != nil:
			t.Fatal(err)
		}
	}
	t.Fatalf("%v takes more entries than it has room for", m)
}

// testFull: where a table of a node is full, known flows go on. A new one is dropped, and counted, if
// a function must remember it; one that only the node would remember passes.
func testFull(t *testing.T, seen rig.Hits) {
	b := newBench(t, seen, chained(topo.Firewall{Rules: []topo.Rule{{Allow: true}}}))
	known, fresh := outward("tcp", 4, 1), outward("tcp", 4, 2)
	b.passes(t, "before", known.packet(), "", "firewall_admitted")
	fill(t, b.Objects().FirewallStates)
	b.passes(t, "known to the firewall", known.later().packet(), "")
	b.passes(t, "new to the firewall", fresh.packet(), "drop_firewall_full")

	b = newBench(t, seen)
	b.run(t, around(to(1, natted), known.packet())).Is(t, "before", redirect, nil, "nat_bound", "returned")
	fill(t, b.Objects().NodeFlows)
	b.run(t, around(to(1, natted), known.later().packet())).Is(t, "known to the node", redirect, nil, "returned")
	b.run(t, around(to(1, costly), fresh.packet())).Is(t, "new to the node", redirect, nil, "direct", "flow_unkept")
	fill(t, b.Objects().NatOut)
	b.run(t, around(to(1, natted), known.later().packet())).Is(t, "known to NAT", redirect, nil, "returned")
	for range 2 * ports { // no port is lost
		b.run(t, around(to(1, natted), fresh.packet())).Is(t, "new to NAT", rig.XDPDrop, nil, "drop_nat_full")
	}
}
