package agent

import (
	"encoding/binary"
	"net/netip"
	"testing"

	"proffer/dataplane/objects"
	"proffer/topo"
)

// TestOffered: each service has its bits and its record, whichever services come and go; no
// other port or address has bits.
func TestOffered(t *testing.T) {
	o := offered{records: make([]uint64, objects.LineSlots*offeringWords), bits: make([]uint64, 2<<16/64)}
	first := topo.VIP{Addr: netip.MustParseAddr("2001:db8::1:2"), Port: 80}
	second := topo.VIP{Addr: netip.MustParseAddr("192.0.2.9"), Port: 443}
	has := func(port, address int) bool { // as may_be_offered
		bit := func(i int) bool { return o.bits[i/64]>>(i%64)&1 == 1 }
		return bit(port) && bit(1<<16+address)
	}
	check := func(when string, want ...bool) {
		t.Helper()
		for i, at := range [][2]int{{80, 2}, {443, 2<<8 + 9}, {81, 2}, {443, 3}} {
			if has(at[0], at[1]) != want[i] {
				t.Errorf("%s: port and end of the address %v: %v", when, at, !want[i])
			}
		}
	}
	o.add(first)
	o.add(second)
	check("two services", true, true, false, false)
	o.keep([]topo.Offering{{VIP: second}})
	check("the second alone", false, true, false, false)

	want := objects.AgentOffering{Index: 2, Cores: 3, Netns: -1, Mac: [6]uint8{1, 2, 3, 4, 5, 6}, Wire: 1, Workers: 7}
	if err := o.set(&want); err != nil {
		t.Fatal(err)
	}
	var got objects.AgentOffering
	var b []byte
	for _, word := range o.records[2*offeringWords:] {
		b = binary.NativeEndian.AppendUint64(b, word)
	}
	if _, err := binary.Decode(b, binary.NativeEndian, &got); err != nil || got != want {
		t.Errorf("the record is %+v (%v), want %+v", got, err, want)
	}
}
