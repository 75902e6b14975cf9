package peers

import (
	"context"
	"errors"
	"math"
	"os"
	"strings"
	"testing"
	"time"

	"proffer/dataplane"
	"proffer/lab/farmrun/farmtest"
)

// took is a turn whose LB or proxy took so long for a connection.
func took(peer string, each time.Duration) *turn {
	const n = 100
	t := &turn{peer: peer, path: path{received: 5 * n, servers: []uint64{n / 2, n / 2}}}
	c := cost{processes: n * each}
	switch peer {
	case byRoute:
		t.path.servers = []uint64{n, 0}
	case byECMP:
	case byHunt, bySingle:
		t.path.balanced = n
		c = cost{programs: dataplane.Ran{Runs: n, Time: n * each}}
	default:
		t.path.ended = n
	}
	t.done = []done{{task: connecting, work: n, took: time.Second, cost: c}}
	return t
}

func TestPeersHold(t *testing.T) {
	report := func(ours, haproxys time.Duration) *Report {
		return &Report{turns: []*turn{took(byRoute, 0), took(byECMP, 0), took(byHunt, ours), took(bySingle, ours), took(byHAProxy, haproxys), took(byNginx, haproxys)}}
	}
	const us = time.Microsecond
	farmtest.Holds(t, "cheaper", report(3*us, 60*us).Holds(), "")
	farmtest.Holds(t, "dearer: no CPU time decides", report(100*us, 60*us).Holds(), "")
	for _, c := range []struct {
		turn  int
		spoil func(*turn)
		what  string
	}{
		{0, func(t *turn) { t.path.servers = []uint64{50, 50} }, "route: 50 came to the server they are routed to"},
		{0, func(t *turn) { t.path.received = 0 }, "route: 0 frames came to the balancer's place"},
		{1, func(t *turn) { t.path.servers = []uint64{100, 0} }, "ecmp: 1 of 2 servers took connections, of 100 made"},
		{1, func(t *turn) { t.path.received = 0 }, "ecmp: 0 frames came to the balancer's place"},
		{1, func(t *turn) { t.path.ended = 1 }, "ecmp: 1 connections ended in the balancer's place"},
		{2, func(t *turn) { t.path.balanced = 99 }, "hunt: 99 are in the LB's books, of 100 made"},
		{3, func(t *turn) { t.path.ended = 1 }, "single: 1 connections ended in the balancer's place"},
		{3, func(t *turn) { t.path.servers = []uint64{100, 0} }, "single: 1 servers took connections"},
		{4, func(t *turn) { t.path.ended = 99 }, "haproxy: 99 connections ended at the proxy"},
		{5, func(t *turn) { t.path.servers = []uint64{50, 49} }, "nginx: 99 connections were taken by servers"},
		{3, func(t *turn) { t.done[0].errors = 7 }, "single, round 1: connections: 7 errors"},
		{5, func(t *turn) { t.done[0].work = 0 }, "nginx, round 1: connections: nothing was answered"},
	} {
		r := report(3*us, 60*us)
		c.spoil(r.turns[c.turn])
		farmtest.Holds(t, c.what, r.Holds(), c.what)
	}
	r := report(3*us, 60*us)
	for _, others := range []int{0, 1, 4, 5} {
		r.turns[others].done[0].errors = 1
	}
	farmtest.Holds(t, "errors of others", r.Went(), "")
}

// TestPeersReadings: the four ways of counting, on numbers that are easy.
func TestPeersReadings(t *testing.T) {
	one := func(peer string, c cost) *turn {
		return &turn{peer: peer, done: []done{{task: requesting, work: 10, took: time.Second, cost: c}}}
	}
	s := time.Second
	r := &Report{turns: []*turn{
		one(byRoute, cost{softirq: 10 * s, busy: 20 * s}),
		one(byHunt, cost{processes: s, programs: dataplane.Ran{Time: 4 * s}, agents: 3 * s, inAgents: 2 * s, softirq: 20 * s, busy: 40 * s}),
		one(bySingle, cost{programs: dataplane.Ran{Time: 4 * s}, softirq: 11 * s, busy: 10 * s}),
		one(byHAProxy, cost{processes: 50 * s, softirq: 30 * s, busy: 100 * s}),
		one(byHAProxy, cost{processes: 50 * s, softirq: 30 * s, busy: 100 * s}), // another round
	}}
	for peer, want := range map[string]reading{
		byRoute:   {},
		byHunt:    {own: 0.5, around: 0.9, withAgents: 1.2, machine: 2}, // softirq around the programs is 10 s − 4 s − 2 s
		bySingle:  {own: 0.4, around: 0.4, withAgents: 0.4, machine: -1},
		byHAProxy: {own: 5, around: 7, withAgents: 7, machine: 8},
	} {
		if got := r.read(peer, requesting); math.Abs(got.around-want.around)+math.Abs(got.withAgents-want.withAgents)+math.Abs(got.own-want.own)+math.Abs(got.machine-want.machine) > 1e-9 {
			t.Errorf("%s: %+v, want %+v", peer, got, want)
		}
	}
}

// TestPeersOver: the p50 of each over that of either way of forwarding, of the same
// round. The machine gets faster from round to round, and in the second one way
// was held up.
func TestPeersOver(t *testing.T) {
	r := &Report{}
	for round, pace := range []float64{1, 0.5, 0.25} {
		for peer, p50 := range map[string]float64{byRoute: 100, byECMP: 125, byHunt: 150, bySingle: 100, byHAProxy: 200, byNginx: 250} {
			if round == 1 && peer == byHunt {
				p50 *= 10
			}
			r.turns = append(r.turns, &turn{peer: peer, round: round, done: []done{{task: waiting, latencies: []float64{999, pace * p50, 1}}}})
		}
	}
	for i, want := range [][2]float64{{0, -20}, {25, 0}, {50, 20}, {0, -20}, {100, 60}, {150, 100}} {
		row := r.Summaries()[i]
		if math.Abs(row.OverRoute-want[0]) > 1e-9 || math.Abs(row.OverECMP-want[1]) > 1e-9 {
			t.Errorf("%s: p50 of %v is %+v %% over route and %+v %% over ecmp, want %v", row.Way, row.P50, row.OverRoute, row.OverECMP, want)
		}
	}
}

// TestUntilStill: it reads until nothing has come, but not for ever.
func TestUntilStill(t *testing.T) {
	no := errors.New("no")
	for _, c := range []struct {
		what  string
		moves int // readings that are each another
		fails int // the reading that cannot be had
		reads int
		want  error
	}{
		{"still", 1, 0, 2, nil},
		{"still in the end", 5, 0, 6, nil},
		{"never", 1000, 0, 51, nil},
		{"gone at first", 5, 1, 1, no},
		{"gone later", 5, 3, 3, no},
	} {
		reads := 0
		err := untilStill(t.Context(), func() (uint64, error) {
			if reads++; reads == c.fails {
				return 0, no
			}
			return uint64(min(reads, c.moves)), nil
		})
		if reads != c.reads || !errors.Is(err, c.want) {
			t.Errorf("%s: %d readings and %v, want %d and %v", c.what, reads, err, c.reads, c.want)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := untilStill(ctx, func() (uint64, error) { return 0, nil }); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}

func TestParseSummary(t *testing.T) {
	s, err := parseSummary("Running 1h test\n  5 requests in 1.00s\nsummary 5 12000000000 1500000 2\n")
	if want := (summary{requests: 5, bytes: 12e9, took: 1500 * time.Millisecond, errors: 2}); err != nil || s != want {
		t.Errorf("%+v, %v; want %+v", s, err, want)
	}
	for _, bad := range []string{"", "unable to connect\n", "summary 5 6 7\n"} {
		if s, err := parseSummary(bad); err == nil {
			t.Errorf("%q is read as %+v", bad, s)
		}
	}
}

// TestProcessTime: a process's clock goes on while it works, and one that is not
// there has none.
func TestProcessTime(t *testing.T) {
	now := func() time.Duration {
		took, err := processTime(os.Getpid())
		if err != nil {
			t.Fatal(err)
		}
		return took
	}
	before := now()
	for deadline := time.Now().Add(time.Minute); now() < before+20*time.Millisecond; {
		if time.Now().After(deadline) {
			t.Fatalf("a minute's work is %v", now()-before)
		}
	}
	if _, err := processTime(1 << 22); err == nil || !strings.Contains(err.Error(), "read CPU time") {
		t.Errorf("no process's CPU time: %v", err)
	}
}

// TestInstalled: a missing program is reported with its package.
func TestInstalled(t *testing.T) {
	if err := installed(); err != nil {
		t.Fatalf("`make test` installs them: %v", err)
	}
	t.Setenv("PATH", t.TempDir())
	err := installed()
	for _, program := range []string{"haproxy is missing: apt-get install haproxy", "nginx is missing: apt-get install nginx-light", "wrk is", "curl is"} {
		if err == nil || !strings.Contains(err.Error(), program) {
			t.Errorf("%v does not say %q", err, program)
		}
	}
}

// TestPeersRatios: a proxy's process stands beside all of ours, never more than its process
// beside less.
func TestPeersRatios(t *testing.T) {
	s := time.Second
	r := &Report{turns: []*turn{
		{peer: byRoute, done: []done{{task: connecting, work: 10, cost: cost{softirq: 10 * s, busy: 20 * s}}}},
		{peer: byHunt, done: []done{{task: connecting, work: 10, cost: cost{programs: dataplane.Ran{Time: 4 * s}, agents: 5 * s, inAgents: 2 * s, softirq: 22 * s, busy: 40 * s}}}},
		{peer: byHAProxy, done: []done{{task: connecting, work: 10, cost: cost{processes: 60 * s, softirq: 80 * s, busy: 100 * s}}}},
	}}
	var b strings.Builder
	r.printRatios(&b)
	want := "A connection costs the process of haproxy 6.0 times as much as the LB of hunt, its programs and the softirq time around them; 4.0 times as much as LB and agents; of the machine 4.0 times.\n"
	if got, _, _ := strings.Cut(b.String(), "A connection costs the process of nginx"); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
