package dataplane

import (
	"bytes"
	"fmt"
	"net/netip"
	"testing"

	"proffer/policy"
	"proffer/topo"
)

// TestLB runs every test of the LB's program, then asks whether together they
// met every reason that the program can count.
func TestLB(t *testing.T) {
	seen := hits{}
	for _, c := range []struct {
		name string
		test func(*testing.T, hits)
	}{
		{"offer", testOffer},
		{"offer, retransmitted", testOfferAgain},
		{"offer, header fields", testOuterHeader},
		{"offer, data offsets", testDataOffsets},
		{"unknown flow", testRecover},
		{"single", testSingle},
		{"pass untouched", testPassUntouched},
		{"client's malformed", testClientMalformed},
		{"no way out", testNoWayOut},
		{"steer", testSteer},
		{"create stickiness", testCreate},
		{"remove stickiness", testRemove},
		{"sweep", testSweepFlows},
		{"table full", testFlowsFull},
		{"unwrap", testUnwrap},
		{"unwrap, congestion", testUnwrapCongestion},
		{"server's malformed", testServerMalformed},
	} {
		t.Run(c.name, func(t *testing.T) { c.test(t, seen) })
	}
	t.Run("every counter", func(t *testing.T) {
		seen.covers(t, newLBRig(t, hits{}, hunting(2, 4)).names, nil)
	})
}

// testOffer: a SYN leaves with C candidates, 40 + 8 + 16 (C − 1) bytes longer,
// 40 for one; a pool smaller than C gives a shorter list.
func testOffer(t *testing.T, seen hits) {
	for _, c := range []struct{ choices, servers, extra int }{
		{1, 8, 40}, {2, 8, 64}, {3, 8, 80}, {4, 8, 96},
		{4, 4, 96}, {4, 3, 80}, {4, 2, 64}, {2, 1, 40}, {4, 1, 40},
	} {
		t.Run(fmt.Sprintf("%d of %d", c.choices, c.servers), func(t *testing.T) {
			r := newLBRig(t, seen, hunting(c.choices, c.servers))
			for i := range 50 {
				p := inward(huntPort, syn)
				p.src = netip.AddrPortFrom(clientAddr, uint16(clientPort+i))
				list := r.list(0, p.flow())
				out := r.send(t, p.frame())
				out.is(t, "SYN", xdpTX, offered(p, list), "offer")
				if added := len(out.frame) - len(p.frame()); added != c.extra || len(list) != min(c.choices, c.servers) {
					t.Fatalf("%d candidates cost %d bytes, want %d", len(list), added, c.extra)
				}
			}
		})
	}
}

// testOfferAgain: a retransmitted SYN meets the same list, at another LB too;
// one of a known flow meets its owner first.
func testOfferAgain(t *testing.T, seen hits) {
	r := newLBRig(t, seen, hunting(3, 8))
	p := inward(huntPort, syn)
	first := r.send(t, p.frame())
	r.send(t, p.frame()).is(t, "SYN again", xdpTX, first.frame, "offer")

	list := r.list(0, p.flow())
	r.learn(t, list[2], p.seq)
	r.send(t, p.frame()).is(t, "SYN of a known flow", xdpTX, offered(p, []int{list[2], list[1], list[0]}), "offer_again")
	r.learn(t, 7, p.seq+1)
	if list[0] != 7 && list[1] != 7 && list[2] != 7 {
		r.send(t, p.frame()).is(t, "SYN, owner no candidate", xdpTX, offered(p, list), "offer_again")
	}
}

// testOuterHeader: traffic class copied whatever it is, hop limit of the inner
// packet one less, all of it by exact bytes.
func testOuterHeader(t *testing.T, seen hits) {
	r := newLBRig(t, seen, hunting(2, 4))
	for class := range 256 {
		p := inward(huntPort, syn)
		p.class = byte(class)
		r.send(t, p.frame()).is(t, fmt.Sprintf("class %#02x", class), xdpTX, offered(p, r.list(0, p.flow())), "offer")
	}
	for _, hop := range []byte{2, 64, 255} {
		p := inward(huntPort, syn)
		p.hop = hop
		r.send(t, p.frame()).is(t, fmt.Sprintf("hop limit %d", hop), xdpTX, offered(p, r.list(0, p.flow())), "offer")
	}
	p := inward(huntPort, syn)
	padded := append(p.frame(), 0xaa, 0xbb, 0xcc) // bytes of the link, not of the packet
	want := append(offered(p, r.list(0, p.flow())), 0xaa, 0xbb, 0xcc)
	r.send(t, padded).is(t, "padded by the link", xdpTX, want, "offer")
}

// testDataOffsets: every length of TCP options, with and without payload.
func testDataOffsets(t *testing.T, seen hits) {
	r := newLBRig(t, seen, hunting(2, 4))
	for words := range 11 {
		for _, payload := range []int{0, 1, 999} {
			for _, flags := range []byte{syn, ack} {
				p := inward(huntPort, flags)
				p.options = bytes.Repeat([]byte{1}, 4*words) // no operation
				p.payload = bytes.Repeat([]byte{0x5a}, payload)
				want, why := offered(p, r.list(0, p.flow())), "offer"
				if flags == ack {
					want, why = recovered(p, r.list(0, p.flow())), "recover"
				}
				r.send(t, p.frame()).is(t, fmt.Sprintf("offset %d, payload %d", 5+words, payload), xdpTX, want, why)
			}
		}
	}
}

// testRecover: any packet that opens nothing, of a flow that is not known.
func testRecover(t *testing.T, seen hits) {
	r := newLBRig(t, seen, hunting(4, 9))
	for flags := range byte(64) {
		p := inward(huntPort, flags)
		p.payload = []byte("data")
		want, why := recovered(p, r.list(0, p.flow())), "recover"
		if flags&(syn|ack|rst|fin) == syn {
			want, why = offered(p, r.list(0, p.flow())), "offer"
		}
		r.send(t, p.frame()).is(t, fmt.Sprintf("flags %#02x", flags), xdpTX, want, why)
	}
}

// testSingle: every packet to the one server of its flow, no state.
func testSingle(t *testing.T, seen hits) {
	svc := service(81, topo.Single, 1, 5)
	r := newLBRig(t, seen, hunting(2, 3), svc)
	for _, flags := range []byte{syn, ack, fin | ack, rst} {
		for i := range 20 {
			p := inward(81, flags)
			p.src = netip.AddrPortFrom(clientAddr, uint16(clientPort+i))
			r.send(t, p.frame()).is(t, "single", xdpTX, toOne(p, r.list(1, p.flow())[0], 0xd7, 0), "deliver")
			if _, known := r.flow(t, p.flow()); known {
				t.Fatal("a single service has an entry")
			}
		}
	}
}

// testSteer: a known flow's packets go to its server, 40 bytes longer.
func testSteer(t *testing.T, seen hits) {
	r := newLBRig(t, seen, hunting(2, 8))
	r.learn(t, 5, clientISN)
	generation := policy.Generation(clientISN)
	p := inward(huntPort, ack)
	p.payload = bytes.Repeat([]byte{7}, 1300)
	out := r.send(t, p.frame())
	out.is(t, "first acknowledgement", xdpTX, toOne(p, 5, 0xa5, generation), "flow_acknowledged", "steer")
	if added := len(out.frame) - len(p.frame()); added != 40 {
		t.Errorf("a steered packet is %d bytes longer, want 40", added)
	}
	for _, flags := range []byte{ack, ack | psh, fin | ack, rst, syn | ack, 0} {
		p.flags = flags
		r.send(t, p.frame()).is(t, "steered", xdpTX, toOne(p, 5, 0xa5, generation), "steer")
	}
}
