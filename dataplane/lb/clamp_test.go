package lb_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"slices"
	"testing"

	"proffer/proof/rig"
	"proffer/wire"
)

// padded fills TCP options up to a whole number of words.
func padded(options ...[]byte) []byte {
	b := slices.Concat(options...)
	return append(b, make([]byte, -len(b)&3)...)
}

// testClamp: the MSS of an answer to a SYN leaves room for our headers, wherever
// it stands among the options, and whatever is malformed stays as it is.
func testClamp(t *testing.T, seen rig.Hits) {
	r := rig.NewLB(t, seen, rig.Hunting(2, 8, rig.Members), rig.Hunting(2, 8, rig.Over4, rig.Members))
	const room = rig.MTU - (40 + 8 + 2*16)
	nop := func(n int) []byte { return bytes.Repeat([]byte{1}, n) }
	scale, stamps := []byte{3, 3, 7}, []byte{8, 10, 1, 2, 3, 4, 5, 6, 7, 8}
	type layout struct {
		label   string
		options []byte
		at      int // of the MSS; -1: it must stay
	}
	layouts := []layout{
		{"none", nil, -1},
		{"behind its end", padded([]byte{0, 0, 0, 0}, rig.MSS(1460)), -1},
		{"of three bytes", padded([]byte{2, 3, 5}, rig.MSS(1460)), -1},
		{"of no bytes", padded([]byte{3, 0, 0, 0}, rig.MSS(1460)), -1},
		{"of one byte", padded([]byte{3, 1, 0, 0}, rig.MSS(1460)), -1},
		{"cut off", []byte{1, 2, 4, 5}, -1},
		{"an option past the end", []byte{8, 40, 2, 4, 5, 0xb4, 0, 0}, -1},
		{"behind an odd one", padded(scale, rig.MSS(1460)), 3},
		{"behind two odd ones", padded(scale, scale, rig.MSS(1460)), 6},
		{"as Linux has it", padded(rig.MSS(1460), []byte{4, 2}, stamps, nop(1), scale), 0},
		{"last, behind all", padded([]byte{4, 2}, stamps, nop(1), scale, rig.MSS(1460)), 16},
		{"twice: the first counts", padded(rig.MSS(1460), rig.MSS(1460)), 0},
	}
	for n := range 37 {
		layouts = append(layouts, layout{fmt.Sprintf("behind %d no-operations", n), padded(nop(n), rig.MSS(1460)), n})
	}
	for _, p := range []rig.Packet{rig.SynAck(rig.HuntPort), rig.OverIPv4(rig.SynAck(rig.HuntPort))} {
		most := room - 60
		if p.Src.Addr().Is4() {
			most = room - 40
		}
		r.Send(t, rig.SignalFrom(1, p, wire.CreateStickiness, wire.Generation(rig.ClientISN)))
		for _, l := range layouts {
			for _, value := range []int{0, 536, most - 1, most, most + 1, 1460, 9000, 65535} {
				p.Options = slices.Clone(l.options)
				clamped := p
				if l.at >= 0 {
					binary.BigEndian.PutUint16(p.Options[l.at+2:], uint16(value))
					clamped.Options = slices.Clone(p.Options)
					binary.BigEndian.PutUint16(clamped.Options[l.at+2:], uint16(min(value, most)))
				}
				out := r.Send(t, rig.SignalFrom(1, p, wire.CreateStickiness, wire.Generation(rig.ClientISN)))
				why := []string{"stickiness_repeated"}
				if l.at >= 0 && value > most {
					why = append(why, "mss_clamped")
				}
				out.Is(t, fmt.Sprintf("%v: %s, %d", p.Src, l.label, value), rig.XDPTX, rig.Unwrapped(clamped), why...)
			}
		}
	}
	data := rig.Outward(rig.HuntPort, wire.ACK)
	data.Options = rig.MSS(9000)
	r.Send(t, rig.SignalFrom(1, data, wire.CreateStickiness, 1)).Is(t, "no SYN", rig.XDPTX, rig.Unwrapped(data), "stickiness_recovered")
}
