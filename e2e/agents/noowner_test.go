package agents

import (
	"testing"

	"proffer/e2e/kit"
	"proffer/lab/testbed"
	"proffer/wire"
)

// TestRecoveryWithoutOwner: data of flows that no server has, as after all their servers'
// restarts, is recovered: each packet visits the servers that may have its flow once, the
// stack of the last one resets the connection, and no packet goes round.
func TestRecoveryWithoutOwner(t *testing.T) {
	const flows = 5
	bed := kit.Up(t, testbed.Config{Servers: 4})
	kit.Serve(t, bed)
	farm := kit.Start(t, bed, kit.Settings(t, "hunt:static:4"))
	var packets [][]byte
	for i := range flows {
		data := wire.TCP{From: uint16(2000 + i), To: testbed.Port, Seq: 1000, Ack: 2000, Flags: wire.ACK | wire.PSH}
		packets = append(packets, wire.IP{Source: kit.Unused, Destination: bed.VIP, HopLimit: wire.DefaultHopLimit}.TCP(data, []byte("data")))
	}
	kit.SendRaw(t, bed, packets...)
	kit.EventuallyIs(t, "packets that the last server's stack got", flows, func() uint64 { return kit.Counter(t, farm, "unowned", bed.Servers...) })
	kit.EventuallyIs(t, "RSTs from the stacks", flows, func() uint64 { return kit.Counter(t, farm, "out_no_flow", bed.Servers...) })
	for name, want := range map[string]uint64{"recover": flows, "recover_returned": 0, "steer": 0, "stickiness_recovered": 0} {
		if n := kit.Counter(t, farm, name, bed.LBs...); n != want {
			t.Errorf("the LB's %s is %d, want %d", name, n, want)
		}
	}
	if n := kit.Counter(t, farm, "unowned", bed.Servers...); n != flows {
		t.Errorf("%d packets without an owner reached a stack, of %d", n, flows)
	}
}
