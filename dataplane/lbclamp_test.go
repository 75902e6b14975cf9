package dataplane

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"slices"
	"testing"

	"proffer/policy"
)

// mss is the option of RFC 9293 §3.7.1.
func mss(value int) []byte { return []byte{2, 4, byte(value >> 8), byte(value)} }

// padded fills TCP options up to a whole number of words.
func padded(options ...[]byte) []byte {
	b := slices.Concat(options...)
	return append(b, make([]byte, -len(b)&3)...)
}

// testClamp: the MSS of an answer to a SYN leaves room for our headers, wherever
// it stands among the options, and whatever is malformed stays as it is.
func testClamp(t *testing.T, seen hits) {
	r := newLBRig(t, seen, hunting(2, 8), hunting(2, 8, over4))
	const room = mtu - (40 + 8 + 2*16)
	nop := func(n int) []byte { return bytes.Repeat([]byte{1}, n) }
	scale, stamps := []byte{3, 3, 7}, []byte{8, 10, 1, 2, 3, 4, 5, 6, 7, 8}
	type layout struct {
		what    string
		options []byte
		at      int // of the MSS; -1: it must stay
	}
	layouts := []layout{
		{"none", nil, -1},
		{"behind its end", padded([]byte{0, 0, 0, 0}, mss(1460)), -1},
		{"of three bytes", padded([]byte{2, 3, 5}, mss(1460)), -1},
		{"of no bytes", padded([]byte{3, 0, 0, 0}, mss(1460)), -1},
		{"of one byte", padded([]byte{3, 1, 0, 0}, mss(1460)), -1},
		{"cut off", []byte{1, 2, 4, 5}, -1},
		{"an option past the end", []byte{8, 40, 2, 4, 5, 0xb4, 0, 0}, -1},
		{"behind an odd one", padded(scale, mss(1460)), 3},
		{"behind two odd ones", padded(scale, scale, mss(1460)), 6},
		{"as Linux has it", padded(mss(1460), []byte{4, 2}, stamps, nop(1), scale), 0},
		{"last, behind all", padded([]byte{4, 2}, stamps, nop(1), scale, mss(1460)), 16},
		{"twice: the first counts", padded(mss(1460), mss(1460)), 0},
	}
	for n := range 37 {
		layouts = append(layouts, layout{fmt.Sprintf("behind %d no-operations", n), padded(nop(n), mss(1460)), n})
	}
	for _, p := range []packet{synAck(huntPort), overIPv4(synAck(huntPort))} {
		most := room - 60
		if p.src.Addr().Is4() {
			most = room - 40
		}
		r.send(t, signalFrom(1, p, create, policy.Generation(clientISN)))
		for _, l := range layouts {
			for _, value := range []int{0, 536, most - 1, most, most + 1, 1460, 9000, 65535} {
				p.options = slices.Clone(l.options)
				clamped := p
				if l.at >= 0 {
					binary.BigEndian.PutUint16(p.options[l.at+2:], uint16(value))
					clamped.options = slices.Clone(p.options)
					binary.BigEndian.PutUint16(clamped.options[l.at+2:], uint16(min(value, most)))
				}
				out := r.send(t, signalFrom(1, p, create, policy.Generation(clientISN)))
				why := []string{"stickiness_repeated"}
				if l.at >= 0 && value > most {
					why = append(why, "mss_clamped")
				}
				out.is(t, fmt.Sprintf("%v: %s, %d", p.src, l.what, value), xdpTX, unwrapped(clamped), why...)
			}
		}
	}
	data := outward(huntPort, ack)
	data.options = mss(9000)
	r.send(t, signalFrom(1, data, create, 1)).is(t, "no SYN", xdpTX, unwrapped(data), "stickiness_recovered")
}
