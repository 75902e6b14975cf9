package twin_test

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"testing"

	"proffer/dataplane/internal/twin"
	"proffer/dataplane/objects"
	"proffer/policy"
	"proffer/proof/rig"
	"proffer/wire"
)

const (
	batch     = 4096 // BATCH of twin.bpf.c
	twinSteps = 30 * batch
)

func loadTwin(t *testing.T) *twin.TwinObjects {
	t.Helper()
	rig.NeedRoot(t)
	spec, err := twin.LoadTwin()
	if err != nil {
		t.Fatal(err)
	}
	if err := spec.Variables["flow_key"].Set(policy.NewDigestKey(rig.CandidateKeyOfTests)); err != nil {
		t.Fatal(err)
	}
	var objs twin.TwinObjects
	if err := spec.LoadAndAssign(&objs, nil); err != nil {
		t.Fatalf("load the twin programs: %+v", err)
	}
	t.Cleanup(func() { objs.Close() })
	return &objs
}

func hashIn(rng *rand.Rand, f policy.Flow) (in twin.TwinHashIn) {
	in.T.Client.In6U.U6Addr8 = f.Client.Addr().As16()
	in.T.Vip.In6U.U6Addr8 = f.VIP.Addr().As16()
	in.T.ClientPortBe, in.T.VipPortBe = objects.PortBits(f.Client.Port()), objects.PortBits(f.VIP.Port())
	in.T.Protocol = f.Protocol.Number()
	in.Word, in.Isn = rng.Uint64(), rng.Uint32()
	return in
}

// TestTwinHash: Digest, Mix, FlowLabel and Generation.
func TestTwinHash(t *testing.T) {
	objs, rng := loadTwin(t), rig.Random(t)
	in, out := make([]twin.TwinHashIn, batch), make([]twin.TwinHashOut, batch)
	key, flows := policy.NewDigestKey(rig.CandidateKeyOfTests), make([]policy.Flow, batch)
	for range twinSteps / batch {
		for i := range in {
			flows[i] = rig.RandomFlow(rng)
			in[i] = hashIn(rng, flows[i])
		}
		runBatch(t, objs.TwinHash, objs.HashIns, in, objs.HashOuts, out)
		for i, got := range out {
			want := twin.TwinHashOut{
				Sip:        got.Sip, // TestTwinHashVector, and policy's tests
				Digest:     key.Digest(flows[i]),
				Mixed:      policy.Mix(in[i].Word),
				Label:      wire.FlowLabel(flows[i]),
				Generation: uint32(wire.Generation(in[i].Isn)),
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
