package control

import (
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
	"time"

	"proffer/dataplane"
	"proffer/report"
	"proffer/topo"
	"proffer/weights"
)

// polledService has n servers, all of them members.
func polledService(n int, d topo.Dispatch) *topo.Service {
	svc := &topo.Service{Name: "web", Dispatch: d}
	for i := range n {
		at := netip.AddrFrom16([16]byte{0x5f, 7: byte(i + 1)})
		svc.Servers = append(svc.Servers, topo.Server{Name: string(rune('a' + i)), Locator: netip.PrefixFrom(at, 64), Weight: 1})
	}
	return svc
}

func reported(nonce uint64, busy float64) *report.Message {
	return &report.Message{Nonce: nonce, Answer: true, Known: true, Report: weights.Report{Busy: busy, Workers: 32, Cores: 2}}
}

// slowPoller knows of each server the begun flows of all requests, and which answers were late.
type slowPoller struct {
	nonces []uint64
	begun  []uint32
	from   int // requests before are over
}

// TestPollerTwin: answers that are lost, late, repeated or invented, at random: the report is that of the
// newest request that was answered, with the flows that its server had begun then.
func TestPollerTwin(t *testing.T) {
	const seed, steps, servers = 5, 20_000, 3
	rng := rand.New(rand.NewPCG(seed, 0))
	p := NewPoller(polledService(servers, topo.Gsq2), nil)
	slow := make([]slowPoller, servers)
	begun := make([]uint32, servers)
	taken := 0
	for step := range steps {
		at := time.Duration(step) * time.Millisecond
		if rng.IntN(3) == 0 {
			for i := range begun {
				begun[i] += rng.Uint32N(5)
			}
			nonces, _ := p.Ask(at, begun, rng.Uint64)
			p.Queues()
			for i := range slow {
				s := &slow[i]
				s.nonces, s.begun = append(s.nonces, nonces[i]), append(s.begun, begun[i])
				s.from = max(s.from, len(s.nonces)-askedAtOnce)
			}
			continue
		}
		i := rng.IntN(servers)
		s := &slow[i]
		if len(s.nonces) == 0 {
			continue
		}
		k := max(0, len(s.nonces)-1-rng.IntN(2*askedAtOnce))
		m := reported(s.nonces[k], float64(step))
		if rng.IntN(8) == 0 {
			m.Nonce = rng.Uint64()
		}
		want := m.Nonce == s.nonces[k] && k >= s.from
		if asked, _ := p.Answer(at, p.svc.Servers[i].Where(), m); asked != want {
			t.Fatalf("step %d (seed %d): taken: %v, want %v", step, seed, asked, want)
		}
		var queues []dataplane.Queue
		if want {
			s.from, taken = k+1, taken+1
			queues = []dataplane.Queue{{Server: i, Requests: uint32(step), Begun: s.begun[k]}}
		}
		if got := p.Queues(); !slices.Equal(got, queues) {
			t.Fatalf("step %d (seed %d): queues %v, want %v", step, seed, got, queues)
		}
	}
	if taken < steps/20 {
		t.Errorf("only %d answers were taken", taken)
	}
}

// TestPollerLoses: a report is lost after a second without an answer, and not before some requests; its
// server counts as the average of the others, is weighed so, and is noted once. An agent that does not
// know its load is such a server.
func TestPollerLoses(t *testing.T) {
	for _, knows := range []bool{true, false} {
		p := NewPoller(polledService(3, topo.WrrFeedback), nil)
		q := NewPoller(polledService(3, topo.Gsq2), nil)
		var lost []Change
		random := uint64(0)
		next := func() uint64 { random++; return random }
		for step := range 20 {
			at := time.Duration(step) * 200 * time.Millisecond
			for _, p := range []*Poller{p, q} {
				nonces, changes := p.Ask(at, make([]uint32, 3), next)
				if p == q {
					lost = append(lost, changes...)
				}
				for i, nonce := range nonces {
					m := reported(nonce, float64(4*(i+1)))
					if i == 2 && step > 0 {
						if m.Known = false; knows {
							continue
						}
					}
					if asked, change := p.Answer(at, p.svc.Servers[i].Where(), m); !asked || change != nil {
						t.Fatalf("step %d: asked %v, change %v", step, asked, change)
					}
				}
			}
			w, queues := p.Weights(at), q.Queues()
			switch isLost := step >= 5; {
			case isLost && (w[2] != (w[0]+w[1])/2 || queues[2].Requests != 6):
				t.Errorf("step %d: weights %v, queues %v, want the average of the others", step, w, queues)
			case !isLost && w[2] >= w[1]:
				t.Errorf("step %d: weights %v: a report that is not lost does not count", step, w)
			case !isLost && step > 0 && len(queues) != 2:
				t.Errorf("step %d: queues %v, want two", step, queues)
			}
		}
		why := map[bool]string{true: "no answer", false: "its agent does not know the service, or its load (`load: busy` sees none of these modes)"}[knows]
		if len(lost) != 1 || lost[0] != (Change{"c", true, time.Second, why}) {
			t.Errorf("lost %+v, want c once", lost)
		}
		nonces, _ := q.Ask(4*time.Second, make([]uint32, 3), next)
		if _, change := q.Answer(4*time.Second, q.svc.Servers[2].Where(), reported(nonces[2], 1)); change == nil || *change != (Change{"c", false, 4 * time.Second, ""}) {
			t.Errorf("back: %+v", change)
		}
	}
}

// TestPollerWaits: where requests are seldom, a report is not lost before some had no answer.
func TestPollerWaits(t *testing.T) {
	p := NewPoller(polledService(1, topo.Awcmp), nil)
	for n := range missedMost + 1 {
		_, changes := p.Ask(time.Duration(n)*lostAfter, make([]uint32, 1), rand.Uint64)
		if lost := len(changes) == 1; lost != (n == missedMost) {
			t.Errorf("request %d without an answer: lost %v", n+1, lost)
		}
	}
}

// TestPollerInherits: servers keep their reports where the pool changes, whichever numbers they get.
func TestPollerInherits(t *testing.T) {
	before := NewPoller(polledService(3, topo.Awcmp), nil)
	nonces, _ := before.Ask(0, make([]uint32, 3), rand.Uint64)
	before.Answer(0, before.svc.Servers[2].Where(), reported(nonces[2], 3))
	svc := polledService(3, topo.Awcmp)
	svc.Servers = svc.Servers[1:]
	after := NewPoller(svc, before)
	wantWeight(t, after, 1, 0.5)
	if asked, _ := after.Answer(0, svc.Servers[0].Where(), reported(nonces[1], 0)); !asked {
		t.Error("the answer to a request of before is not taken")
	}
	wantWeight(t, after, 0, 2)
}

// wantWeight checks the weight of a server.
func wantWeight(t *testing.T, p *Poller, server int, want float64) {
	t.Helper()
	if got := p.Weights(0)[server]; got != want {
		t.Errorf("server %d has the weight %v, want %v", server, got, want)
	}
}

// TestPollerEvery: many servers are asked less often, at most 20,000 times a second together.
func TestPollerEvery(t *testing.T) {
	for n, want := range map[int]time.Duration{2: 5 * time.Millisecond, topo.MaxSeats: 51200 * time.Microsecond} {
		p := NewPoller(&topo.Service{Dispatch: topo.Gsq2, Servers: make([]topo.Server, n)}, nil)
		if got := p.Every(); got != want {
			t.Errorf("%d servers: every %v, want %v", n, got, want)
		}
		p.Ask(time.Second, make([]uint32, n), rand.Uint64)
		if p.Due(time.Second+want-1) || !p.Due(time.Second+want) {
			t.Errorf("%d servers: due at another time", n)
		}
	}
}
