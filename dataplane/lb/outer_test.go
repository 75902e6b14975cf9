package lb_test

import (
	"bytes"
	"fmt"
	"testing"

	"proffer/proof/rig"
	"proffer/wire"
)

// testOuterHeader: traffic class copied whatever it is, hop limit of the inner
// packet one less, all of it by exact bytes.
func testOuterHeader(t *testing.T, seen rig.Hits) {
	r := rig.NewLB(t, seen, rig.Hunting(2, 4))
	for class := range 256 {
		p := rig.Inward(rig.HuntPort, wire.ACK)
		p.Class = byte(class)
		r.Send(t, p.Frame()).Is(t, fmt.Sprintf("class %#02x", class), rig.XDPTX, rig.Recovered(p, r.List(t, 0, p.Flow())), "recover")
	}
	for _, hop := range []byte{2, 64, 255} {
		p := rig.Inward(rig.HuntPort, wire.ACK)
		p.Hop = hop
		r.Send(t, p.Frame()).Is(t, fmt.Sprintf("hop limit %d", hop), rig.XDPTX, rig.Recovered(p, r.List(t, 0, p.Flow())), "recover")
	}
	p := rig.Inward(rig.HuntPort, wire.SYN)
	padded := append(p.Frame(), 0xaa, 0xbb, 0xcc) // bytes of the link, not of the packet
	want := append(rig.Offered(p, r.List(t, 0, p.Flow())), 0xaa, 0xbb, 0xcc)
	r.Send(t, padded).Is(t, "padded by the link", rig.XDPTX, want, "offer")
}

// testDataOffsets: every length of TCP options, with and without payload.
func testDataOffsets(t *testing.T, seen rig.Hits) {
	r := rig.NewLB(t, seen, rig.Hunting(2, 4), rig.Hunting(2, 4, rig.Over4))
	for words := range 11 {
		for _, payload := range []int{0, 1, 999} {
			for svc := range 2 {
				p := rig.Inward(rig.HuntPort, wire.SYN)
				if svc == 1 {
					p = rig.OverIPv4(p)
				}
				p.Seq += uint32(words<<16 + payload)
				p.Options = bytes.Repeat([]byte{1}, 4*words) // no operation
				p.Payload = bytes.Repeat([]byte{0x5a}, payload)
				list := r.List(t, svc, p.Flow())
				label := fmt.Sprintf("offset %d, payload %d", 5+words, payload)
				r.Send(t, p.Frame()).Is(t, label, rig.XDPTX, rig.Offered(p, list), "offer")
				p.Flags = wire.ACK
				r.Send(t, p.Frame()).Is(t, label, rig.XDPTX, rig.Recovered(p, list), "recover")
			}
		}
	}
}
