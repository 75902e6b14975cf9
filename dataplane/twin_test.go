package dataplane

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"net/netip"
	"os"
	"strconv"
	"testing"

	"proffer/dataplane/internal/twin"
	"proffer/policy"
)

// The programs' integer decisions, compiled apart for tests: a batch a call.
//
//go:generate go tool bpf2go -cc clang-19 -strip llvm-strip-19 -target bpfel -no-global-types -output-dir internal/twin -go-package twin -output-suffix= -type hash_in -type hash_out -type act -type accept_in -type accept_out -type offering -type load Twin ../bpf/bench/twin.bpf.c -- -I../bpf -O2 -fno-strict-aliasing -mcpu=v3 -Wall -Wextra -Werror -Wno-unused-parameter -I/usr/include/x86_64-linux-gnu -I/usr/include/aarch64-linux-gnu

const (
	batch     = 4096 // BATCH of twin.bpf.c
	twinSteps = 30 * batch
)

// random returns a generator and prints its seed; PROFFER_SEED repeats a run.
func random(t testing.TB) *rand.Rand {
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

func loadTwin(t *testing.T) *twin.TwinObjects {
	t.Helper()
	needRoot(t)
	spec, err := twin.LoadTwin()
	if err != nil {
		t.Fatal(err)
	}
	if err := spec.Variables["flow_key"].Set(policy.NewDigestKey(candidateKeyOfTests)); err != nil {
		t.Fatal(err)
	}
	var objs twin.TwinObjects
	if err := spec.LoadAndAssign(&objs, nil); err != nil {
		t.Fatalf("load the twin programs: %+v", err)
	}
	t.Cleanup(func() { objs.Close() })
	return &objs
}

func randomFlow(rng *rand.Rand) policy.Flow {
	address := func() netip.AddrPort {
		var a [16]byte
		binary.BigEndian.PutUint64(a[:], rng.Uint64())
		binary.BigEndian.PutUint64(a[8:], rng.Uint64())
		return netip.AddrPortFrom(netip.AddrFrom16(a), uint16(rng.Uint32()))
	}
	return policy.Flow{Client: address(), VIP: address()}
}

func hashIn(rng *rand.Rand, f policy.Flow) (in twin.TwinHashIn) {
	in.T.Client.In6U.U6Addr8 = f.Client.Addr().As16()
	in.T.Vip.In6U.U6Addr8 = f.VIP.Addr().As16()
	in.T.ClientPortBe, in.T.VipPortBe = portBits(f.Client.Port()), portBits(f.VIP.Port())
	in.T.Protocol = f.Protocol.Number()
	in.Word, in.Isn = rng.Uint64(), rng.Uint32()
	return in
}

// TestTwinHash: Digest, Mix, FlowLabel and Generation.
func TestTwinHash(t *testing.T) {
	objs, rng := loadTwin(t), random(t)
	in, out := make([]twin.TwinHashIn, batch), make([]twin.TwinHashOut, batch)
	key, flows := policy.NewDigestKey(candidateKeyOfTests), make([]policy.Flow, batch)
	for range twinSteps / batch {
		for i := range in {
			flows[i] = randomFlow(rng)
			in[i] = hashIn(rng, flows[i])
		}
		runBatch(t, objs.TwinHash, objs.HashIns, in, objs.HashOuts, out)
		for i, got := range out {
			want := twin.TwinHashOut{
				Sip:        got.Sip, // TestTwinHashVector, and policy's tests
				Digest:     key.Digest(flows[i]),
				Mixed:      policy.Mix(in[i].Word),
				Label:      policy.FlowLabel(flows[i]),
				Generation: uint32(policy.Generation(in[i].Isn)),
			}
			if got != want {
				t.Fatalf("%+v of word %#x, isn %#x: bpf %+v, go %+v",
					flows[i], in[i].Word, in[i].Isn, got, want)
			}
		}
	}
}

// TestTwinHashVector: the C itself against the reference (key 00 … 0f, the 40
// bytes 00 … 27), laid over the tuple.
func TestTwinHashVector(t *testing.T) {
	objs := loadTwin(t)
	raw := make([]byte, 16+40)
	for i := range raw {
		raw[i] = byte(i)
		if i >= 16 {
			raw[i] -= 16
		}
	}
	in, out := make([]twin.TwinHashIn, batch), make([]twin.TwinHashOut, batch)
	if _, err := binary.Decode(raw, binary.NativeEndian, &in[0].Key); err != nil {
		t.Fatal(err)
	}
	if err := binary.Read(bytes.NewReader(raw[16:]), binary.NativeEndian, &in[0].T); err != nil {
		t.Fatal(err)
	}
	runBatch(t, objs.TwinHash, objs.HashIns, in, objs.HashOuts, out)
	if const40 := uint64(0x0e3ea96b5304a7d0); out[0].Sip != const40 {
		t.Errorf("SipHash-2-4 of 40 bytes: %016x, want %016x", out[0].Sip, const40)
	}
}
