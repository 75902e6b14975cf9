package lb_test

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"testing"
	"time"

	"proffer/proof/rig"
	"proffer/topo"
	"proffer/wire"
)

// asksAll follows a packet of no flow through its lists: all servers are asked, or a list was dropped.
func asksAll(r *rig.LB, t *testing.T, frame []byte) bool {
	t.Helper()
	for range 64 {
		out := r.Run(t, frame)
		if out.Action != rig.XDPTX {
			return false
		}
		segments := segmentsOf(out.Frame, false)
		last := segments[len(segments)-1]
		if !rig.LbLocator.Contains(last) {
			return true
		}
		frame = arrivedAt(out.Frame, last, false)
	}
	t.Fatal("a list without end")
	return false
}

// numbered is one of many packets of no flow.
func numbered(port uint16, i int) rig.Packet {
	p := rig.Inward(port, wire.ACK|wire.PSH)
	p.Src = netip.AddrPortFrom(rig.ClientNumber(i>>14), uint16(i&0x3fff))
	p.Payload = []byte("payload")
	return p
}

// TestQuestionsInFlood: segments of no flow, each sent twice, as a forger repeats them, to a service of
// which all servers are asked. Questions about the service's own lost flows are asked all the same, and
// those of another service of the same servers.
func TestQuestionsInFlood(t *testing.T) {
	const beside, seconds = 100, 2 // questions a second of each service
	for _, c := range []struct{ servers, flood int }{{200, 2500}, {60, 20_000}} {
		t.Run(fmt.Sprint(c.servers, " servers"), func(t *testing.T) {
			r := rig.NewLimitedLB(t, rig.Hits{}, crowd(c.servers), crowd(c.servers, rig.At81))
			r.Remembers = true
			asked := map[uint16]int{}
			for ms := range seconds * 1000 {
				r.At(t, r.Now+time.Millisecond)
				for i := c.flood * ms / 1000; i < c.flood*(ms+1)/1000; i++ {
					frame := numbered(rig.HuntPort, i).Frame()
					asksAll(r, t, frame)
					asksAll(r, t, frame)
				}
				if ms%(1000/beside) > 0 {
					continue
				}
				for _, port := range []uint16{rig.HuntPort, 81} {
					if asksAll(r, t, numbered(port, 1<<28+ms).Frame()) {
						asked[port]++
					}
				}
			}
			t.Logf("asked about of %d: %v", beside*seconds, asked)
			if n := asked[rig.HuntPort]; n < beside*seconds*90/100 {
				t.Errorf("of %d questions of the service %d were asked", beside*seconds, n)
			}
			if n := asked[81]; n < beside*seconds*99/100 {
				t.Errorf("of %d questions of the other service %d were asked", beside*seconds, n)
			}
		})
	}
}

// searched empties the ring of addresses that user space is to resolve, and returns their number.
func searched(r *rig.LB, t *testing.T) (n int) {
	t.Helper()
	r.Lost.SetDeadline(time.Now())
	for ; ; n++ {
		if _, err := r.Lost.Read(); err != nil {
			if !errors.Is(err, os.ErrDeadlineExceeded) {
				t.Fatal(err)
			}
			return n
		}
	}
}

// TestStrangersInFlood: long packets, and the servers' answers to SYNs, of one sender, of forged senders,
// and of forged ones on the LB's own link, in either family. Of 1,500 clients that send a packet that is
// too long beside them all get the size, and few neighbours are looked for.
func TestStrangersInFlood(t *testing.T) {
	const flood, clients, seconds, searches = 4000, 1500, 3, 50
	onLink := netip.MustParsePrefix("2001:db8:7777::/48")
	from := map[string]func(i int) netip.Addr{
		"one sender": func(int) netip.Addr { return rig.ClientNumber(1 << 30) },
		"forged":     func(i int) netip.Addr { return rig.ClientNumber(1<<30 + i) },
		"on the link": func(i int) netip.Addr {
			a := onLink.Addr().As16()
			a[13], a[14], a[15] = byte(i>>16), byte(i>>8), byte(i)
			return netip.AddrFrom16(a)
		},
	}
	for label, source := range from {
		for _, family := range []int{6, 4} {
			t.Run(fmt.Sprint(label, ", IPv", family), func(t *testing.T) {
				service, over := rig.Hunting(2, 2), func(p rig.Packet) rig.Packet { return p }
				if family == 4 {
					service = rig.Hunting(2, 2, rig.Over4)
					over = func(p rig.Packet) rig.Packet {
						a := p.Src.Addr().As16()
						q := rig.OverIPv4(p)
						if onLink.Contains(p.Src.Addr()) {
							q.Src = netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, a[13], a[14], a[15]}), p.Src.Port())
						} else {
							q.Src = netip.AddrPortFrom(netip.AddrFrom4([4]byte{20 + a[4], a[5], a[6], a[7]}), p.Src.Port())
						}
						return q
					}
				}
				r := rig.NewLimitedLB(t, rig.Hits{}, service)
				hops := topo.NextHops{
					netip.MustParsePrefix("::/0"): rig.RouterMAC, netip.MustParsePrefix("0.0.0.0/0"): rig.RouterMAC,
					onLink: {}, netip.MustParsePrefix("10.0.0.0/8"): {},
				}
				for i := range 2 {
					hops[rig.ServerLocator(i)] = rig.HopMAC(i)
				}
				if err := r.SetNextHops(hops); err != nil {
					t.Fatal(err)
				}
				long := func(a netip.Addr) rig.Packet {
					p := rig.Inward(rig.HuntPort, wire.ACK)
					p.Src = netip.AddrPortFrom(a, p.Src.Port())
					return rig.Sized(over(p), rig.MTU)
				}
				answered, looked := 0, 0
				for ms := range seconds * 1000 {
					r.At(t, r.Now+time.Millisecond)
					for i := flood * ms / 1000; i < flood*(ms+1)/1000; i++ {
						p := long(source(i))
						r.Run(t, p.Frame())
						p.Payload = nil
						r.Run(t, rig.SignalFrom(i%2, p.Reply(wire.SYN|wire.ACK), wire.CreateStickiness, 1))
					}
					for i := clients * ms / (seconds * 1000); i < clients*(ms+1)/(seconds*1000); i++ {
						if out := r.Run(t, long(rig.ClientNumber(i)).Frame()); out.Action == rig.XDPTX && len(out.Frame) < rig.MTU {
							answered++
						}
					}
					looked += searched(r, t)
				}
				t.Logf("%d clients got the size, %d neighbours looked for", answered, looked)
				if answered != clients {
					t.Errorf("of %d clients %d got the size", clients, answered)
				}
				if most := searches * (seconds + 1); looked > most {
					t.Errorf("%d neighbours were looked for, want at most %d", looked, most)
				}
				if label == "on the link" && looked < searches {
					t.Errorf("%d neighbours were looked for, want %d", looked, searches)
				}
			})
		}
	}
}
