package rig

import (
	"encoding/binary"
	"net/netip"
	"slices"

	"proffer/wire"
)

// WithIPv4Options puts options, a multiple of four bytes, into the IPv4 header of a frame.
func WithIPv4Options(frame []byte, options ...byte) []byte {
	at := 14 + 20
	out := slices.Concat(frame[:at], options, frame[at:])
	out[14] += byte(len(options) / 4)
	binary.BigEndian.PutUint16(out[16:], binary.BigEndian.Uint16(frame[16:])+uint16(len(options)))
	out[24], out[25] = 0, 0
	binary.BigEndian.PutUint16(out[24:], Sum(out[14:at+len(options)]))
	return out
}

// Sum is the Internet checksum of bytes (RFC 1071); of bytes with a right one in them 0.
func Sum(b []byte) uint16 {
	sum := uint32(0)
	if len(b)%2 == 1 {
		b = append(slices.Clone(b), 0)
	}
	for ; len(b) > 1; b = b[2:] {
		sum += uint32(binary.BigEndian.Uint16(b))
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	return ^uint16(sum)
}

// Inside changes the packet that an outer header carries, as a frame of its own.
func Inside(frame []byte, change func([]byte) []byte) []byte {
	at, next := AtUpper, frame[AtNext]
	if next == wire.ProtoRouting {
		at, next = at+8+8*int(frame[AtUpper+1]), frame[AtUpper]
	}
	kind := []byte{0x86, 0xdd}
	if next == wire.ProtoIPv4 {
		kind = []byte{8, 0}
	}
	inner := change(slices.Concat(frame[:12], kind, frame[at:]))
	out := slices.Concat(frame[:at], inner[14:])
	binary.BigEndian.PutUint16(out[AtLength:], uint16(len(out)-AtUpper))
	return out
}

// Changes put each kind of options that are served into a frame, or into the packet that
// its outer header carries, of that frame's kind.
func Changes(four bool) []func([]byte) []byte {
	if four {
		return []func([]byte) []byte{
			func(f []byte) []byte { return WithIPv4Options(f, 1, 1, 1, 0) },
			func(f []byte) []byte { return WithIPv4Options(f, 7, 11, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0) }, // record route
			func(f []byte) []byte { return WithIPv4Options(f, 148, 4, 0, 0) },                        // router alert
		}
	}
	return []func([]byte) []byte{
		func(f []byte) []byte { return WithExtension(f, 0, 0) },
		func(f []byte) []byte { return WithExtension(f, 60, 2) },
		func(f []byte) []byte { return WithExtension(WithExtension(f, 60, 0), 0, 1) },
		func(f []byte) []byte { return WithExtension(f, 44, 0) }, // a fragment that is a whole packet
	}
}

// Optioned are frames with each kind of options that are served.
func Optioned(frames ...[]byte) (all [][]byte) {
	for _, f := range frames {
		for _, change := range Changes(f[12] == 8) {
			all = append(all, change(f))
		}
	}
	return all
}

// OptionedInside are frames with each kind of options in the packets that they carry.
func OptionedInside(frames ...[]byte) (all [][]byte) {
	for _, f := range frames {
		next := f[AtNext]
		if next == wire.ProtoRouting {
			next = f[AtUpper]
		}
		for _, change := range Changes(next == wire.ProtoIPv4) {
			all = append(all, Inside(f, change))
		}
	}
	return all
}

// AboutFrame is a router's error to the sender of a frame that it was too big.
func AboutFrame(frame []byte, mtu int) []byte {
	quoted := frame[14:]
	router := wire.IP{Source: netip.MustParseAddr("2001:db8:c::ff"), HopLimit: 60}
	if frame[12] == 8 {
		router.Source, router.Destination = netip.MustParseAddr("192.0.2.254"), netip.AddrFrom4([4]byte(quoted[12:16]))
	} else {
		router.Destination = netip.AddrFrom16([16]byte(quoted[8:24]))
	}
	return wire.Frame(HereMAC, RouterMAC, router.TooBig(mtu, quoted))
}
