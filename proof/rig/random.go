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
