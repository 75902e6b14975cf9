package twin_test

import (
	"math"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/cilium/ebpf"

	"proffer/dataplane/internal/twin"
	"proffer/dataplane/objects"
	"proffer/policy"
	"proffer/proof/rig"
	"proffer/topo"
)

// runBatch writes in, runs the program once over all of it and reads out.
func runBatch[I, O any](t *testing.T, prog *ebpf.Program, to *ebpf.Variable, in []I, from *ebpf.Variable, out []O) {
	t.Helper()
	if err := to.Set(in); err != nil {
		t.Fatal(err)
	}
	code, err := prog.Run(&ebpf.RunOptions{})
	if err != nil || code != 0 {
		t.Fatalf("run %s: %d, %v", prog, code, err)
	}
	if err := from.Get(out); err != nil {
		t.Fatal(err)
	}
}

// rules draws how a service decides: its three parts as C and Go take them.
func rules(rng *rand.Rand, which topo.Acceptance) (*policy.Acceptor, twin.TwinOffering, twin.TwinLoad) {
	a := &policy.Acceptor{
		Acceptance: which,
		Threshold:  rng.Uint32N(40),
		Window:     1 + rng.Uint32N(60),
		Epsilon:    float64(rng.IntN(500_001)) / 1e6,
		Workers:    rng.Uint32N(40),
	}
	return a, twin.TwinOffering{
		Window:     a.Window,
		EpsilonPpm: uint32(math.Round(a.Epsilon * 1e6)),
		Workers:    a.Workers,
		Acceptance: uint8(which),
	}, twin.TwinLoad{Threshold: a.Threshold}
}

// TestTwinAccept: every kind of acceptance walks the same random offers in C
// and in Go, the threshold compared after each.
func TestTwinAccept(t *testing.T) {
	objs, rng := loadTwin(t), rig.Random(t)
	in, out := make([]twin.TwinAcceptIn, batch), make([]twin.TwinAcceptOut, batch)
	for round := range 3 * twinSteps / batch {
		acceptor, offering, load := rules(rng, topo.Acceptance(round%len(topo.Acceptances())))
		if err := objs.Tested.Set(offering); err != nil {
			t.Fatal(err)
		}
		if err := objs.State.Put(uint32(0), load); err != nil {
			t.Fatal(err)
		}
		around := 1 + rng.Uint32N(80)
		for i := range in {
			in[i] = twin.TwinAcceptIn{Act: twin.TwinActACT_ACCEPTS, Value: rng.Uint32N(around)}
		}
		rule := *acceptor
		runBatch(t, objs.TwinAccept, objs.AcceptIns, in, objs.AcceptOuts, out)
		for i, got := range out {
			want := acceptor.Offer(in[i].Value)
			if (got.Answer == 1) != want || got.Threshold != acceptor.Threshold {
				t.Fatalf("%+v, offer %d, busy %d: bpf %v, threshold %d; go %v, %d",
					rule, i, in[i].Value, got.Answer == 1, got.Threshold, want, acceptor.Threshold)
			}
		}
	}
}

// ledger is the slow twin of the pending ring: the epoch of every connection
// that is awaited.
type ledger []uint32

const ring = 8 // PENDING_EPOCHS

// arrive crosses out one connection of that epoch, unless it has expired: a
// later epoch was noted in its place.
func (l *ledger) arrive(epoch uint32) {
	for i, e := range *l {
		if e == epoch {
			*l = append((*l)[:i], (*l)[i+1:]...)
			return
		}
	}
}

// expect notes a connection, and forgets those of the epoch that it replaces in the ring.
func (l *ledger) expect(epoch uint32) {
	kept := (*l)[:0]
	for _, e := range *l {
		if e == epoch || e%ring != epoch%ring {
			kept = append(kept, e)
		}
	}
	*l = append(kept, epoch)
}

func (l *ledger) expected(epoch, limit uint32) (n uint32) {
	for _, e := range *l {
		if epoch-e < ring {
			n++
		}
	}
	return min(n, limit)
}

// act draws the next step: mostly in the present, arrivals of the last two
// rings, now and then a leap past all of them.
func act(rng *rand.Rand, epoch *uint32) twin.TwinAcceptIn {
	switch n := rng.IntN(100); {
	case n < 1:
		*epoch += rng.Uint32N(3 * ring)
	case n < 20:
		*epoch++
	}
	at := *epoch
	in := twin.TwinAcceptIn{Act: twin.TwinAct(1 + rng.Uint32N(3)), Value: rng.Uint32N(40)}
	if in.Act == twin.TwinActACT_PENDING_REMOVE {
		at -= min(rng.Uint32N(2*ring), at)
	}
	in.NowNs = uint64(at)<<objects.EpochShift | rng.Uint64N(1<<objects.EpochShift)
	return in
}

// TestTwinPending: expect, arrive and expected over virtual epochs.
func TestTwinPending(t *testing.T) {
	objs, rng := loadTwin(t), rig.Random(t)
	in, out := make([]twin.TwinAcceptIn, batch), make([]twin.TwinAcceptOut, batch)
	var slow ledger
	epoch := uint32(10 * ring)
	for range twinSteps / batch {
		for i := range in {
			in[i] = act(rng, &epoch)
		}
		runBatch(t, objs.TwinAccept, objs.AcceptIns, in, objs.AcceptOuts, out)
		for i, got := range out {
			at, want := uint32(in[i].NowNs>>objects.EpochShift), uint32(0)
			switch in[i].Act {
			case twin.TwinActACT_PENDING_ADD:
				slow.expect(at)
			case twin.TwinActACT_PENDING_REMOVE:
				slow.arrive(at)
			case twin.TwinActACT_PENDING_COUNT:
				want = slow.expected(at, in[i].Value)
			}
			if got.Answer != want {
				t.Fatalf("step %d, epoch %d, at most %d: bpf %d, go %d of %v", i, at, in[i].Value, got.Answer, want, slow)
			}
		}
	}
}

// TestEpochs: the program counts in the epochs that Go reads by.
func TestEpochs(t *testing.T) {
	if n := len(objects.AgentLoad{}.Pending); n != ring {
		t.Errorf("PENDING_EPOCHS is %d, this test thinks %d", n, ring)
	}
	objs := loadTwin(t)
	in, out := make([]twin.TwinAcceptIn, batch), make([]twin.TwinAcceptOut, batch)
	const epoch = 1000
	in[0] = twin.TwinAcceptIn{Act: twin.TwinActACT_PENDING_ADD, NowNs: epoch<<objects.EpochShift + 1<<objects.EpochShift - 1}
	in[1] = twin.TwinAcceptIn{Act: twin.TwinActACT_PENDING_ADD, NowNs: (epoch + 1) << objects.EpochShift}
	for i := 2; i < batch; i++ {
		in[i] = twin.TwinAcceptIn{Act: twin.TwinActACT_PENDING_COUNT, NowNs: in[0].NowNs, Value: 9}
	}
	runBatch(t, objs.TwinAccept, objs.AcceptIns, in, objs.AcceptOuts, out)
	var load objects.AgentLoad
	if err := objs.State.Lookup(uint32(0), &load); err != nil {
		t.Fatal(err)
	}
	if got := objects.Expected(&load, epoch+1); got != 2 {
		t.Errorf("expected counts %d of two neighbouring epochs", got)
	}
	for i, p := range load.Pending {
		want := uint32(0)
		if i == epoch%ring || i == (epoch+1)%ring {
			want = 1
		}
		if p.Count != want {
			t.Errorf("place %d of the ring holds %d, want %d: EPOCH_SHIFT is not %d", i, p.Count, want, objects.EpochShift)
		}
	}
}

// TestPendingAtOnce: CPUs that count in one place of the ring, each in its epoch, never leave
// a count below 0.
func TestPendingAtOnce(t *testing.T) {
	const rounds = 3000
	objs := loadTwin(t)
	in := make([]twin.TwinAcceptIn, batch)
	for i := range in {
		epoch := uint64(i/8) * ring // of two adds, four removals and two counts
		in[i] = twin.TwinAcceptIn{Act: twin.TwinActACT_PENDING_REMOVE, NowNs: epoch << objects.EpochShift, Value: math.MaxUint32}
		switch i % 8 {
		case 0, 2:
			in[i].Act = twin.TwinActACT_PENDING_ADD
		case 5, 7:
			in[i].Act = twin.TwinActACT_PENDING_COUNT
		}
	}
	if err := objs.AcceptIns.Set(in); err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			out := make([]twin.TwinAcceptOut, batch)
			for range rounds {
				if code, err := objs.TwinAccept.Run(&ebpf.RunOptions{}); err != nil || code != 0 {
					t.Errorf("%d, %v", code, err)
					return
				}
				if err := objs.AcceptOuts.Get(out); err != nil {
					t.Error(err)
				}
				for i := range out {
					if n := out[i].Answer; n > batch && in[i].Act == twin.TwinActACT_PENDING_COUNT {
						t.Errorf("%d connections are pending", n)
						return
					}
				}
			}
		})
	}
	wg.Wait()
}
