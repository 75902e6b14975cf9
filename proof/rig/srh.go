package rig

import (
	"encoding/binary"
	"net/netip"
	"slices"

	"proffer/wire"
)

// WithSRH puts a routing header between the outer header of an encapsulated
// frame and the packet inside.
func WithSRH(frame, header []byte) []byte {
	out := slices.Concat(frame[:AtUpper], header, frame[AtUpper:])
	binary.BigEndian.PutUint16(out[AtLength:], uint16(len(out)-AtUpper))
	out[AtNext] = 43
	return out
}

type badSRH struct {
	Name   string
	Header []byte
}

// BadSRHs are headers that RFC 8754 §4.3.1.1 refuses, or RFC 8200 §4.4.
func BadSRHs(a netip.Addr) []badSRH {
	change := func(at int, to byte, list ...netip.Addr) []byte {
		return Altered(wire.SRH(wire.ProtoIPv6, 1, list...), at, to)
	}
	return []badSRH{
		{"length past the packet", change(1, 200, a, a)},
		{"length of none", change(1, 0, a)},
		{"length of half a segment", change(1, 1, a)},
		{"last entry past the length", change(4, 2, a, a)},
		{"last entry 255", change(4, 255, a, a)},
		{"segments left past the last entry + 1", change(3, 3, a, a)},
		{"segments left 255", change(3, 255, a, a)},
		{"routing type 0", change(2, 0, a, a)},
		{"routing type 3, nothing left", Altered(change(2, 3, a), 3, 0)},
	}
}

// WithTLVs returns headers with a valid segment list and bytes behind it: TLVs by RFC 8754
// §2.1 or none, the longest of them as many as a header has room for.
func WithTLVs(a netip.Addr) []badSRH {
	with := func(tlv ...byte) []byte {
		header := append(wire.SRH(wire.ProtoIPv6, 0, a), tlv...)
		header[1] += byte(len(tlv) / 8)
		return header
	}
	return []badSRH{
		{"Pad1", with(make([]byte, 8)...)},
		{"PadN", with(4, 6, 0, 0, 0, 0, 0, 0)},
		{"TLV of 255 bytes in 8", with(124, 255, 0, 0, 0, 0, 0, 0)},
		{"type without length at the end", with(4, 5, 0, 0, 0, 0, 0, 124)},
		{"163 times eight Pad1", with(make([]byte, 8*163)...)},
		{"253 times eight Pad1", with(make([]byte, 8*253)...)},
	}
}

// WithExtension puts an extension header of RFC 8200 §4 between the first IPv6 header of a
// frame and its next, length times eight bytes longer than the least.
func WithExtension(frame []byte, kind byte, length int) []byte {
	header := make([]byte, 8+8*length)
	header[0], header[1] = frame[AtNext], byte(length)
	out := slices.Concat(frame[:AtUpper], header, frame[AtUpper:])
	binary.BigEndian.PutUint16(out[AtLength:], uint16(len(out)-AtUpper))
	out[AtNext] = kind
	return out
}
