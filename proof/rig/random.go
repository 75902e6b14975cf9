package rig

import (
	"encoding/binary"
	"math/rand/v2"
	"net/netip"
	"os"
	"strconv"
	"testing"

	"proffer/policy"
)

// Random returns a generator and prints its seed; PROFFER_SEED repeats a run.
func Random(t testing.TB) *rand.Rand {
	t.Helper()
	seed := rand.Uint64()
	if s := os.Getenv("PROFFER_SEED"); s != "" {
		var err error
		if seed, err = strconv.ParseUint(s, 10, 64); err != nil {
			t.Fatalf("PROFFER_SEED: %v", err)
		}
	}
	t.Logf("seed %d", seed)
	return rand.New(rand.NewPCG(seed, 0))
}

func RandomFlow(rng *rand.Rand) policy.Flow {
	address := func() netip.AddrPort {
		var a [16]byte
		binary.BigEndian.PutUint64(a[:], rng.Uint64())
		binary.BigEndian.PutUint64(a[8:], rng.Uint64())
		return netip.AddrPortFrom(netip.AddrFrom16(a), uint16(rng.Uint32()))
	}
	return policy.Flow{Client: address(), VIP: address()}
}

// AnyOf is one of these.
func AnyOf[T any](rng *rand.Rand, all ...T) T { return all[rng.IntN(len(all))] }

// Damaged is a frame, most often as it was; else with another bit, with padding, or cut.
func Damaged(rng *rand.Rand, frame []byte) []byte {
	switch rng.IntN(8) {
	case 0:
		frame[rng.IntN(min(len(frame), 80))] ^= 1 << rng.IntN(8)
	case 1:
		frame = append(frame, make([]byte, rng.IntN(20))...)
	case 2:
		frame = frame[:len(frame)-rng.IntN(min(len(frame)-14, 30))]
	}
	return frame
}
