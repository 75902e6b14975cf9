package nf_test

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"proffer/proof/rig"
)

// testNeighbours: packets to ever more addresses of the node's link make the kernel look for few
// neighbours a second. Those that it looks for get their packets all the same.
func testNeighbours(t *testing.T, seen rig.Hits) {
	const most = 50 // bpf/core/limit.h
	b := newBench(t, seen)
	towards := func(i int) rig.Outcome {
		f := outward("udp", 4, 1)
		f.to = netip.AddrPortFrom(netip.AddrFrom4([4]byte{192, 0, 2, byte(100 + i)}), 53)
		return b.run(t, to(0, costly).Around(f.packet()))
	}
	for i := range most {
		towards(i).Is(t, fmt.Sprint("neighbour ", i), rig.XDPPass, nil, "pass_to_router")
	}
	towards(most).Is(t, "one too many", rig.XDPDrop, nil, "drop_limit_neighbour")
	towards(0).Is(t, "one that is looked for", rig.XDPPass, nil, "pass_to_router")
	b.at(t, b.now+time.Second/most)
	towards(most).Is(t, "a token later", rig.XDPPass, nil, "pass_to_router")
}
