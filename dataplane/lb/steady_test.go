package lb_test

import (
	"math/rand/v2"
	"net/netip"
	"reflect"
	"slices"
	"testing"
	"time"

	"proffer/proof/rig"
	"proffer/topo"
	"proffer/wire"
)

// variants are the forms that a service may have; nil: it is not there.
func variants() []func(s *topo.Service) {
	single := func(s *topo.Service) { s.Dispatch, s.Choices = topo.Single, 1 }
	return []func(*topo.Service){
		nil, nil,
		func(*topo.Service) {}, func(*topo.Service) {}, // hunt
		single, single,
		rig.ViaTransit(1),
		func(s *topo.Service) {
			if s.VIP.Addr.Is6() {
				s.Wire = topo.Insert
			}
		},
		func(s *topo.Service) { single(s); byAgents(s) },
		func(s *topo.Service) { single(s); s.Via = []netip.Addr{rig.Transit(0)} },
		func(s *topo.Service) { s.Dispatch, s.Choices = topo.Stateless, 1 },
		func(s *topo.Service) { single(s); byKernel(s) },
		func(s *topo.Service) { s.Dispatch, s.Choices = topo.Stateless, 1; byKernel(s) },
		func(s *topo.Service) { single(s); by(topo.ByL2, false)(s) },
		func(s *topo.Service) { single(s); by(topo.ByVXLAN, false)(s) },
	}
}

// byKernel is the kernel's SRv6 of the service's family, at servers beside those with agents: a
// server has one delivery over SRv6.
func byKernel(s *topo.Service) {
	for i := range s.Servers {
		s.Servers[i].Locator, s.Servers[i].Delivery = rig.ServerLocator(100+i), topo.ByDT6
		if s.VIP.Addr.Is4() {
			s.Servers[i].Delivery = topo.ByDX4
		}
	}
}

// randomServices are some of four services, each as one of its variants.
func randomServices(rng *rand.Rand) (services []topo.Service) {
	for _, at := range []func(*topo.Service){func(*topo.Service) {}, rig.Over4, rig.OverUDP, func(s *topo.Service) { s.VIP.Port = 81 }} {
		if v := variants()[rng.IntN(len(variants()))]; v != nil {
			services = append(services, rig.Hunting(2, 4, at, v))
		}
	}
	return services
}

// randomPacket is a packet of one of few clients to a service that may be there.
func randomPacket(rng *rand.Rand) rig.Packet {
	p := rig.Inward(rig.AnyOf[uint16](rng, 80, 81), rig.AnyOf[byte](rng, wire.SYN, wire.ACK, wire.ACK, wire.ACK, wire.ACK|8, wire.FIN|wire.ACK, wire.RST, 0))
	client := rig.ClientAddr
	if rng.IntN(3) == 0 {
		client = netip.MustParseAddr("192.0.2.7")
		p.Dst = netip.AddrPortFrom(rig.Vip4, p.Dst.Port())
	} else if rng.IntN(3) == 0 {
		p.Protocol = topo.UDP
	}
	p.Src = netip.AddrPortFrom(client, uint16(rig.ClientPort+rng.IntN(3)))
	p.Seq, p.Ack = rig.ClientISN+1, rig.ServerISN+1
	if p.Flags == wire.SYN {
		p.Seq = rig.ClientISN
	}
	p.Hop, p.Class = rig.AnyOf[byte](rng, 64, 64, 64, 2, 1, 0), rig.AnyOf[byte](rng, 0, 0, 1, 3, 0xb8)
	p.Payload = make([]byte, rig.AnyOf(rng, 0, 0, 1, 5, 100, 1380, 1400, 1420, 1440))
	return p
}

// randomFrame is a packet's, which may be damaged or padded, or a signal of a server that took it.
func randomFrame(rng *rand.Rand, r *rig.LB) []byte {
	p := randomPacket(rng)
	if rng.IntN(4) == 0 {
		answer := p.Reply(wire.SYN | wire.ACK)
		answer.Seq, answer.Ack, answer.Hop = rig.ServerISN, rig.ClientISN+1, 64
		answer.Payload = nil
		generation := wire.Generation(rig.ClientISN)
		if p.Protocol == topo.UDP {
			generation = 1
		}
		return rig.SignalFrom(rng.IntN(4), answer, rig.AnyOf(rng, wire.CreateStickiness, wire.CreateStickiness, wire.RemoveStickiness), generation)
	}
	return rig.Damaged(rng, p.Frame())
}

// TestSteady: a packet fares by the short way of known flows as by the general one: the same
// frame, action and counters, whatever the services become meanwhile.
func TestSteady(t *testing.T) {
	rng := rig.Random(t)
	short := rig.NewLB(t, rig.Hits{}, rig.Hunting(2, 4))
	general := rig.LoadLB(t, rig.Hits{}, rig.LBConfig(rig.Hunting(2, 4)))
	short.Remembers, general.Remembers = true, true
	general.Unplain()
	steered, delivered := 0, 0
	for i := range 12_000 {
		if rng.IntN(100) == 0 {
			services := randomServices(rng)
			short.Reconfigure(t, services...)
			general.Reconfigure(t, services...)
			if rng.IntN(10) == 0 {
				short.Resolve(t, 2)
				general.Resolve(t, 2)
			}
			general.Unplain()
		}
		if now := short.Now + rig.AnyOf[time.Duration](rng, 0, 0, 0, rig.Unit, 20*rig.Unit); now != short.Now {
			short.At(t, now)
			general.At(t, now)
		}
		frame := randomFrame(rng, short)
		got, want := short.Send(t, slices.Clone(frame)), general.Send(t, frame)
		if !reflect.DeepEqual(got, want) {
			t.Fatalf("packet %d, %x:\nby the short way action %d for %v, %x\nby the general   action %d for %v, %x", i, frame,
				got.Action, got.Reasons, got.Frame, want.Action, want.Reasons, want.Frame)
		}
		if slices.Equal(got.Reasons, []string{"steer"}) {
			steered++
		}
		if slices.Equal(got.Reasons, []string{"deliver"}) {
			delivered++
		}
	}
	if steered < 500 || delivered < 50 {
		t.Errorf("%d packets were steered, %d delivered; want 500 and 50", steered, delivered)
	}
}

// TestPlain: the slots of services show which of them are plain.
func TestPlain(t *testing.T) {
	r := rig.NewLB(t, rig.Hits{}, rig.Hunting(2, 4))
	for _, c := range []struct {
		name   string
		change func(*topo.Service)
		want   uint64
	}{
		{"hunt", func(*topo.Service) {}, 1},
		{"single", func(s *topo.Service) { s.Dispatch, s.Choices = topo.Single, 1 }, 2},
		{"stateless", func(s *topo.Service) { s.Dispatch, s.Choices = topo.Stateless, 1 }, 3},
		{"stateless, with fragments", func(s *topo.Service) {
			s.Dispatch, s.Choices, s.Fragments = topo.Stateless, 1, topo.HashFragments
		}, 0},
		{"inserted", rig.Inserting, 0},
		{"through transit SIDs", rig.ViaTransit(1), 0},
	} {
		svc := rig.Hunting(2, 4, c.change)
		r.Reconfigure(t, svc)
		if got := r.Plain(svc.VIP); got != c.want {
			t.Errorf("%s: plain is %d, want %d", c.name, got, c.want)
		}
	}
}

// TestPlainChain: the slot of a service does not show how plain another of its chain is.
func TestPlainChain(t *testing.T) {
	vips := chained(2)
	of := func(i int, d topo.Dispatch) topo.Service {
		svc := rig.Service(0, d, 1, 4)
		svc.VIP = vips[i]
		return svc
	}
	for own := range vips {
		services := []topo.Service{of(0, topo.Hunt), of(1, topo.Hunt)}
		services[own] = of(own, topo.Single)
		r := rig.NewLB(t, rig.Hits{}, services...)
		for i, flags := range []byte{wire.SYN, wire.ACK, wire.ACK} {
			p := rig.Inward(0, flags)
			p.Dst = netip.AddrPortFrom(vips[own].Addr, vips[own].Port)
			want := rig.ToOne(p, r.List(t, own, p.Flow())[0], wire.Deliver, 0)
			if got := r.Send(t, p.Frame()); !slices.Equal(got.Frame, want) {
				t.Errorf("service %d, packet %d: %v, %x\nwant %x", own, i, got.Reasons, got.Frame, want)
			}
		}
	}
}

// TestStaleDatagram: an entry that one datagram has met is removed by the next, if its server left
// the pool.
func TestStaleDatagram(t *testing.T) {
	svc := rig.Hunting(2, 4, rig.OverUDP)
	r := rig.NewLB(t, rig.Hits{}, svc)
	p := rig.Inward(rig.HuntPort, 0)
	p.Protocol, p.Dst = topo.UDP, netip.AddrPortFrom(svc.VIP.Addr, svc.VIP.Port)
	server := r.List(t, 0, p.Flow())[0]
	r.Send(t, rig.SignalFrom(server, p.Reply(0), wire.CreateStickiness, 1))
	r.Send(t, p.Frame()).Is(t, "the first datagram", rig.XDPTX, nil, "flow_established", "steer")
	svc.Servers = slices.DeleteFunc(slices.Clone(svc.Servers), func(s topo.Server) bool { return rig.NumberOf(&s) == server })
	r.Reconfigure(t, svc)
	r.Unplain() // the short way leaves the datagram to the general one
	r.Send(t, p.Frame()).Is(t, "the next one", rig.XDPTX, nil, "stale_removed", "offer_datagram")
	if e, known := r.Flow(t, p.Flow()); known {
		t.Errorf("the entry stands: %+v", e)
	}
}
