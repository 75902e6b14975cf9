package policy

import (
	"encoding/binary"
	"math/bits"
	"net/netip"

	"proffer/topo"
)

// Flow is a five-tuple as the client sends it.
type Flow struct {
	Client   netip.AddrPort
	VIP      netip.AddrPort
	Protocol topo.Protocol
}

// Bytes lays the flow out as struct tuple of bpf/core/types.h: IPv4 addresses mapped
// (RFC 4291 §2.5.5.2).
func (f Flow) Bytes() (b [40]byte) {
	client, vip := f.Client.Addr().As16(), f.VIP.Addr().As16()
	copy(b[0:], client[:])
	copy(b[16:], vip[:])
	binary.BigEndian.PutUint16(b[32:], f.Client.Port())
	binary.BigEndian.PutUint16(b[34:], f.VIP.Port())
	b[36] = f.Protocol.Number()
	return b
}

// SipHash is SipHash-2-4 (Aumasson and Bernstein, 2012) of data, a whole number of
// 8-byte words. Twin of bpf/core/siphash.h.
func SipHash(key topo.Key, data []byte) uint64 {
	k0, k1 := binary.LittleEndian.Uint64(key[:8]), binary.LittleEndian.Uint64(key[8:])
	s := sip{k0 ^ 0x736f6d6570736575, k1 ^ 0x646f72616e646f6d, k0 ^ 0x6c7967656e657261, k1 ^ 0x7465646279746573}
	last := uint64(len(data)) << 56
	for ; len(data) > 0; data = data[8:] {
		s.absorb(binary.LittleEndian.Uint64(data))
	}
	s.absorb(last)
	s[2] ^= 0xff
	for range 4 {
		s.round()
	}
	return s[0] ^ s[1] ^ s[2] ^ s[3]
}

type sip [4]uint64

func (s *sip) absorb(word uint64) {
	s[3] ^= word
	s.round()
	s.round()
	s[0] ^= word
}

func (s *sip) round() {
	s[0] += s[1]
	s[1] = bits.RotateLeft64(s[1], 13) ^ s[0]
	s[0] = bits.RotateLeft64(s[0], 32)
	s[2] += s[3]
	s[3] = bits.RotateLeft64(s[3], 16) ^ s[2]
	s[0] += s[3]
	s[3] = bits.RotateLeft64(s[3], 21) ^ s[0]
	s[2] += s[1]
	s[1] = bits.RotateLeft64(s[1], 17) ^ s[2]
	s[2] = bits.RotateLeft64(s[2], 32)
}

// Mix is the finaliser of SplitMix64 (Steele, Lea and Flood, 2014).
func Mix(x uint64) uint64 {
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// Candidates returns `choices` different numbers under members, every ordered
// list equally likely over h; all members if there are fewer.
func Candidates(h uint64, members, choices int) []int {
	n := min(members, choices, topo.MaxChoices)
	left := make([]int, members)
	for i := range left {
		left[i] = i
	}
	list := make([]int, n)
	for i := range list {
		draw := Mix(h+uint64(i+1)*0x9e3779b97f4a7c15) >> 32 * uint64(members-i) >> 32
		list[i] = left[draw]
		left = append(left[:draw], left[draw+1:]...)
	}
	return list
}
