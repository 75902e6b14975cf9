package edge_test

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"proffer/proof/rig"
	"proffer/wire"
)

// testNeighbours: packets to ever more addresses of a link of the LB make the kernel look for few
// neighbours a second. Those that it looks for get their packets all the same, as does a known one.
func testNeighbours(t *testing.T, seen rig.Hits) {
	const most = 50 // bpf/core/limit.h
	b := newBench(t, seen)
	address(t, "world", "198.51.0.1/16")
	address(t, "world", "2001:db8:9::1/48")
	for _, f := range []flow{from4("udp", 500), from6("udp", 500)} {
		b.at(t, b.now+time.Minute)
		sent := map[int]wire.Tunnel{}
		towards := func(i int) rig.Outcome {
			a := f.to.Addr().AsSlice()
			a[len(a)-1], a[len(a)-2] = byte(i), 200
			to, _ := netip.AddrFromSlice(a)
			g := f
			g.to = netip.AddrPortFrom(to, f.to.Port())
			if _, known := sent[i]; !known {
				sent[i] = b.tunnelled(t, g.String(), b.fromClient(t, g.packet()), g.packet(), "flow_begun", "steer")
			}
			return b.fromNode(t, back(sent[i]), g.packet())
		}
		for i := range most {
			towards(i).Is(t, fmt.Sprint("neighbour ", i), rig.XDPPass, nil, "pass_to_router")
		}
		towards(most).Is(t, "one too many", rig.XDPDrop, nil, "drop_limit_neighbour")
		towards(0).Is(t, "one that is looked for", rig.XDPPass, nil, "pass_to_router")
		known := from4("tcp", 501)
		if f.from.Addr().Is4() {
			known.to = netip.AddrPortFrom(gateway, 80)
			to := b.tunnelled(t, "known", b.fromClient(t, known.packet()), known.packet(), "flow_begun", "steer")
			b.fromNode(t, back(to), known.packet()).Is(t, "a known one", redirect, nil, "update_known")
		}
		b.at(t, b.now+time.Second/most)
		towards(most).Is(t, "a token later", rig.XDPPass, nil, "pass_to_router")
	}
}
