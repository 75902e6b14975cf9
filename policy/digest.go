package policy

import (
	"crypto/hkdf"
	"crypto/sha256"
	"encoding/binary"

	"proffer/topo"
)

// DigestKey is the key that every LB of a farm hashes flows with, for its table of
// flows and for their candidates. With it an attacker could make flows that share
// an entry.
// Layout of struct digest_key in bpf/core/digest.h.
type DigestKey struct {
	Odd  [2]uint64
	Word [12]uint32
}

// NewDigestKey expands a farm's candidate key.
func NewDigestKey(candidate topo.Key) (k DigestKey) {
	secret, err := hkdf.Key(sha256.New, candidate[:], nil, "proffer flow digest", binary.Size(k))
	if err == nil {
		_, err = binary.Decode(secret, binary.LittleEndian, &k)
	}
	if err != nil {
		panic(err) // of no key, however bad: the length is ours
	}
	for i := range k.Odd {
		k.Odd[i] |= 1
	}
	return k
}

// Digest is NH (Black et al., UMAC, 1999) of a flow under the key, and under the
// key moved on by two words, mixed to 64 bits. Twin of bpf/core/digest.h.
func (k DigestKey) Digest(f Flow) uint64 {
	data := f.Bytes()
	nh := func(key []uint32) (sum uint64) {
		for i := 0; i < len(data)/4; i += 2 {
			x, y := binary.LittleEndian.Uint32(data[4*i:]), binary.LittleEndian.Uint32(data[4*i+4:])
			sum += uint64(x+key[i]) * uint64(y+key[i+1])
		}
		return sum
	}
	h := nh(k.Word[:])
	h = (h^h>>32)*k.Odd[0] + nh(k.Word[2:])
	h = (h ^ h>>32) * k.Odd[1]
	return h ^ h>>32
}
