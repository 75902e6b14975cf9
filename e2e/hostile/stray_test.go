package hostile

import (
	"encoding/binary"
	"testing"

	"proffer/e2e/kit"
	"proffer/lab/testbed"
	"proffer/lab/traffic/raw"
	"proffer/wire"
)

// TestStrayPacketsStarveNoFlow: an LB that has just taken over gets 300,000 ACKs of no flow, and
// recovers 1,000 flows meanwhile. The ACKs cost the servers no more than the limit.
func TestStrayPacketsStarveNoFlow(t *testing.T) {
	const (
		flows, packets, rate = 1000, 300_000, 60_000
		perSecond            = 4000 // about which a server is asked (bpf/core/limit.h)
	)
	bed := kit.Up(t, testbed.Config{LBs: 2, Servers: 2})
	kit.Echoes(t, bed, bed.Servers...)
	if err := bed.Announce(bed.LBs[0]); err != nil {
		t.Fatal(err)
	}
	farm := kit.Start(t, bed, kit.Settings(t, "hunt:static:65535"))
	all := kit.Open(t, bed, 30_000, flows)
	if err := bed.Announce(bed.LBs[1]); err != nil {
		t.Fatal(err)
	}
	link, err := raw.Ethernet(bed.Client.Enter, "eth0", bed.VIP)
	if err != nil {
		t.Fatal(err)
	}
	stray := wire.IP{Source: bed.ClientAddrs[0], Destination: bed.VIP, HopLimit: 64}.TCP(wire.TCP{From: 1, To: testbed.Port, Flags: wire.ACK}, nil)
	frame := func(i int) []byte { // another port and address each; no server looks at the checksum
		binary.BigEndian.PutUint32(stray[20:], uint32(i>>16)|0xbad0000)
		binary.BigEndian.PutUint16(stray[wire.IPv6Bytes:], uint16(i))
		return append(link[:len(link):len(link)], stray...)
	}
	var sent raw.Sent
	flooded := make(chan error, 1)
	go func() {
		var err error
		sent, err = raw.Forge{Interface: "eth0", Frame: frame, Frames: packets, Rate: rate, Enter: bed.Client.Enter}.Run(t.Context())
		flooded <- err
	}()
	kit.Eventually(t, "more ACKs than the limit", func() bool { return kit.Counter(t, farm, "drop_limit_stray", bed.LBs[1]) > 0 })
	kit.Alive(t, "among ACKs of no flow, at an LB without their entries", all)
	if err := <-flooded; err != nil {
		t.Fatal(err)
	}
	bound := perSecond * (2 + int(sent.Elapsed.Seconds()))
	n := kit.Counter(t, farm, "recover", bed.LBs[1])
	t.Logf("%d ACKs in %v: %d questions, at most %d", sent.Frames, sent.Elapsed, n, bound)
	if n > uint64(bound+10*flows) || n < flows {
		t.Errorf("%d questions for %d ACKs of no flow and %d flows, want %d at most", n, sent.Frames, flows, bound+10*flows)
	}
	if dropped := kit.Counter(t, farm, "drop_limit_question", bed.LBs[1]); dropped != 0 {
		t.Errorf("%d packets of flows were too many", dropped)
	}
}
