package hostile

import (
	"context"
	"encoding/binary"
	"errors"
	"net/netip"
	"strings"
	"testing"
	"time"

	"proffer/e2e/kit"
	"proffer/lab/testbed"
	"proffer/lab/traffic"
	"proffer/lab/traffic/raw"
	"proffer/wire"
)

// strangers floods an LB with rate packets a second, from forged sources on the LB's own link, until the
// returned function is called: SYNs, which servers answer by the LB, and packets that are too long.
func strangers(t *testing.T, bed *testbed.Bed, rate float64) (stop func()) {
	t.Helper()
	link, err := raw.Ethernet(bed.Client.Enter, "eth0", bed.VIP)
	if err != nil {
		t.Fatal(err)
	}
	on := bed.LBs[0].Addr.As16()
	frame := func(i int) []byte {
		from := on
		binary.BigEndian.PutUint32(from[12:], 0x77<<24|uint32(i))
		ip := wire.IP{Source: netip.AddrFrom16(from), Destination: bed.VIP, HopLimit: 64}
		segment := wire.TCP{From: uint16(1024 + i%60000), To: testbed.Port, Seq: uint32(i), Flags: wire.SYN}
		if i%2 == 0 {
			return append(link[:len(link):len(link)], ip.TCP(segment, nil)...)
		}
		segment.Flags = wire.ACK
		return append(link[:len(link):len(link)], ip.TCP(segment, make([]byte, 1440))...)
	}
	ctx, cancel := context.WithCancel(t.Context())
	flooded := make(chan error, 1)
	go func() {
		_, err := raw.Forge{Interface: "eth0", Frame: frame, Frames: 1 << 22, Rate: rate, Enter: bed.Client.Enter}.Run(ctx)
		flooded <- err
	}()
	return func() {
		cancel()
		if err := <-flooded; err != nil && !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	}
}

// TestFloodFromTheLink: forged SYNs and long packets with sources on the LB's own link, 4,000 a second, cost
// no request, the LB looks for few neighbours, and its daemon takes little CPU time: 2 % of a core on a quiet
// machine, above 60 where it looks for all.
func TestFloodFromTheLink(t *testing.T) {
	const requests = 1000
	bed := kit.Up(t, testbed.Config{Servers: 2})
	kit.Serve(t, bed)
	farm := kit.Start(t, bed, kit.Settings(t, "hunt:static:65535"))
	lb := bed.LBs[0]
	began, spent := time.Now(), kit.CPUOf(t, farm, lb)
	stop := strangers(t, bed, 4000)
	kit.Eventually(t, "the LB lacks next hops of strangers", func() bool { return kit.Counter(t, farm, "drop_no_next_hop", lb) > 1000 })
	client := traffic.Client{To: kit.VIP(bed), Enter: bed.Client.Enter, Timeout: kit.Patience}
	run, err := client.Run(t.Context(), kit.Every(5*time.Millisecond, requests))
	if err != nil {
		t.Fatal(err)
	}
	stop()
	span := time.Since(began)
	spent("beside 4,000 forged packets a second", 20)
	for _, row := range run.Rows {
		if row.Outcome != traffic.OK {
			t.Errorf("request %d: %s: %s", row.ID, row.Outcome, row.Cause)
		}
	}
	neighbours := strings.Count(kit.In(t, lb, "ip", "-6", "neigh", "show", "dev", "eth0"), "\n")
	if most := 50*int(span.Seconds()+2) + 20; neighbours > most { // bpf/core/limit.h
		t.Errorf("the LB has %d neighbours after %v, want at most %d", neighbours, span, most)
	}
	t.Logf("%d neighbours after %v", neighbours, span)
}
