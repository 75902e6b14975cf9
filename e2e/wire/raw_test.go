package wire

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"proffer/e2e/kit"
	"proffer/lab/testbed"
)

// TestSameList: a SYN that comes again meets the same list, whether the LB
// remembers the first one's or not: that a server which has the connection
// already is asked first changes the order, never the members.
func TestSameList(t *testing.T) {
	const flows, choices, first = 32, 3, 40000
	bed := kit.Up(t, testbed.Config{Servers: 6})
	kit.Serve(t, bed)
	s := kit.Settings(t, "hunt:static:0")
	s.Choices = choices
	farm := kit.Start(t, bed, s)
	lb := bed.LBs[0]
	for _, n := range bed.Servers { // none repeats its answer, from which a new LB would learn
		kit.SetSysctl(t, n, "net/ipv4/tcp_synack_retries", "0")
	}
	var syns [][]byte
	for i := range flows {
		syns = append(syns, kit.BareSYN(bed, first+i, 1000*i, 0))
	}

	c := kit.Record(t, bed)
	kit.SendRaw(t, bed, syns...)
	kit.Eventually(t, "all offers are taken", func() bool { return kit.Counter(t, farm, "stickiness_created", lb) == flows })
	kit.SendRaw(t, bed, syns...)
	kit.Eventually(t, "all offers are made again", func() bool { return kit.Counter(t, farm, "offer_again", lb) == flows })
	kit.Forget(t, farm.Daemon(lb))
	kit.Restart(t, bed, lb, "lb")
	kit.SendRaw(t, bed, syns...)
	kit.Eventually(t, "a new LB makes all offers", func() bool { return kit.Counter(t, farm, "offer", lb) == flows })
	w := kit.Recorded{Bed: bed, Frames: c.Stop(t)}

	distinct := map[string]bool{}
	lists := w.OffersIn()
	for i := range flows {
		got := lists[uint16(first+i)]
		if len(got) != 3 {
			t.Fatalf("%d offers for 3 SYNs of one flow", len(got))
		}
		distinct[fmt.Sprint(got[0])] = true
		if !slices.Equal(got[0], got[2]) {
			t.Errorf("another LB without memory offers to %v, want %v", got[2], got[0])
		}
		want := members(got[0])
		want = append([]netip.Prefix{want[choices-1]}, want[:choices-1]...) // the last one has it
		if again := members(got[1]); !slices.Equal(again, want) {
			t.Errorf("the SYN came again and was offered to %v, want %v", again, want)
		}
	}
	if len(distinct) < flows/2 { // of 120 lists
		t.Errorf("%d flows met %d lists", flows, len(distinct))
	}
}

func members(way []netip.Addr) []netip.Prefix {
	var servers []netip.Prefix
	for _, sid := range way {
		servers = append(servers, kit.Locator(sid))
	}
	return servers
}

// TestTrafficClass: all 256 classes, those with congestion marks (RFC 3168)
// among them, are outside what they are inside (RFC 6040 §4.1).
func TestTrafficClass(t *testing.T) {
	bed := kit.Up(t, testbed.Config{Servers: 3})
	kit.Serve(t, bed)
	farm := kit.Start(t, bed, kit.Settings(t, "hunt:static:4"))
	c := kit.Record(t, bed)
	const classes, first = 256, 20000
	var syns [][]byte
	for class := range classes {
		syns = append(syns, kit.BareSYN(bed, first+class, class, uint8(class)))
	}
	kit.SendRaw(t, bed, syns...)
	kit.Eventually(t, "all are offered", func() bool { return kit.Counter(t, farm, "offer", bed.LBs[0]) == classes })
	w := kit.Recorded{Bed: bed, Frames: c.Stop(t)}
	pairs := w.Forwarded(t)
	if len(pairs) != classes {
		t.Fatalf("%d packets for %d classes", len(pairs), classes)
	}
	for _, p := range pairs {
		want := uint8(p.In.TCP.From.Port() - first)
		if inner, outer := p.Out.TCP.Header.Class, p.Out.Ip.Class; p.In.Ip.Class != want || inner != want || outer != want {
			t.Errorf("class %#x came as %#x and left as %#x inside, %#x outside", want, p.In.Ip.Class, inner, outer)
		}
	}
}
