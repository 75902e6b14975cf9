package study

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"proffer/lab/sim"
)

// searchOf is for N queues of one core each, of which theory knows the mean.
func searchOf(t *testing.T, goal string, policies ...string) *Search {
	t.Helper()
	s := wantSetting(t, `servers: [{count: 20, cores: 1, discipline: fifo, backlog: 100000}]
service: {distribution: exponential, mean: 100ms}
hop: {least: 0ms, most: 0ms}
requests: 40000
`, nil)
	g, err := ParseGoal(goal)
	if err != nil {
		t.Fatal(err)
	}
	search := &Search{Setting: s, Load: at(t, s, 0.4), Goal: g, Seeds: 4}
	for _, name := range policies {
		p, err := sim.ParsePolicy(name)
		if err != nil {
			t.Fatal(err)
		}
		search.Policies = append(search.Policies, p)
	}
	return search
}

// TestSearchFindsWhatTheorySays: 8 cores' worth of requests spread at random over
// N queues take 100 ms / (1 − 8/N) on average; of 200 ms are within 16.
func TestSearchFindsWhatTheorySays(t *testing.T) {
	s := searchOf(t, "mean<=200", "single", "jsq")
	found, err := s.Run(t.Context(), func(SearchProgress) {})
	if err != nil {
		t.Fatal(err)
	}
	single, jsq := found[0], found[1]
	if single.Servers < 15 || single.Servers > 17 || single.Low > single.Servers || single.High < single.Servers || single.High == 0 {
		t.Errorf("single: %d servers, %d to %d; want 16", single.Servers, single.Low, single.High)
	}
	if jsq.Servers < 9 || jsq.Servers > 11 {
		t.Errorf("jsq: %d servers, want fewer: 9 to 11", jsq.Servers)
	}
	for _, f := range found {
		at, any := f.At()
		if !any || float64(at.Value) > 200 {
			t.Errorf("%s: %+v does not reach the goal", f.Policy, at)
		}
		for _, tried := range f.Tried {
			if tried.Rho >= 1 || (tried.Servers < f.Low) != (float64(tried.Value-tried.CI) > 200) {
				t.Errorf("%s: %+v, but %d to %d servers are possible", f.Policy, tried, f.Low, f.High)
			}
		}
	}
}

// TestSearchWithoutAnswer: no number of servers serves a request faster than it
// takes alone.
func TestSearchWithoutAnswer(t *testing.T) {
	s := searchOf(t, "mean<=50", "single")
	if err := s.Setting.SetRequests(2000); err != nil {
		t.Fatal(err)
	}
	s.Load = at(t, s.Setting, 0.4)
	found, err := s.Run(t.Context(), func(SearchProgress) {})
	if err != nil || found[0].Servers != 0 || found[0].High != 0 {
		t.Errorf("%+v, %v", found, err)
	}
	var out strings.Builder
	if err := s.Print(&out, found); err != nil || !strings.Contains(out.String(), "single        –            –") {
		t.Errorf("%v in\n%s", err, out.String())
	}
}

// TestSearchKeepsProportions of groups, and numbers of servers apart from them.
func TestSearchKeepsProportions(t *testing.T) {
	b, err := Named("B:c1:4")
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range []int{2, 64, 128, 300} {
		groups := map[int]int{}
		for _, s := range b.with(n).Farm.Servers {
			groups[s.Group]++
		}
		if groups[0] != n/2 || groups[1] != n/2 {
			t.Errorf("%d servers have groups of %v", n, groups)
		}
	}
	if len(b.Farm.Servers) != 128 {
		t.Error("the farm itself changed")
	}
}

// TestSearchRefuses what names servers by number.
func TestSearchRefuses(t *testing.T) {
	for name, change := range map[string]func(*sim.Farm){
		"background": func(f *sim.Farm) { f.Background = []sim.Background{{Servers: []int{0}, Cores: 0.5}} },
		"events":     func(f *sim.Farm) { f.Events = []sim.Event{{At: time.Second, Kind: sim.Fail, Servers: []int{0}}} },
	} {
		s := searchOf(t, "mean<=200", "single")
		if err := s.Check(); err != nil {
			t.Fatal(err)
		}
		change(&s.Setting.Farm)
		if err := s.Check(); err == nil || !strings.Contains(err.Error(), "name servers by number") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestLogOfFailures: connections of a server that fails are lost.
func TestLogOfFailures(t *testing.T) {
	s := searchOf(t, "mean<=200", "single").Setting
	s.Farm.Events = []sim.Event{{At: time.Second, Kind: sim.Fail, Servers: []int{3, 4, 5, 6, 7, 8}}}
	study := &Study{Setting: s, Policies: searchOf(t, "mean<=200", "single").Policies, Loads: []Load{at(t, s, 0.5)}, Seeds: 1}
	var out strings.Builder
	log, err := NewLog(&out, s.Farm)
	if err != nil {
		t.Fatal(err)
	}
	lost := 0
	study.Each = func(l Load, p sim.Policy, r sim.Result) error {
		lost = r.Lost
		return log.Add(l, p, r)
	}
	runAll(t, study)
	if n := strings.Count(out.String(), ",lost\n"); n != lost || lost == 0 {
		t.Errorf("%d lines of lost requests, the run lost %d", n, lost)
	}
}

func TestSearchInterrupted(t *testing.T) {
	s := searchOf(t, "mean<=200", "single", "jsq")
	ctx, cancel := context.WithCancel(t.Context())
	found, err := s.Run(ctx, func(p SearchProgress) {
		if p.Policy == "jsq" {
			cancel()
		}
	})
	if len(found) != 1 || err == nil || err.Error() != "interrupted: 1 of 2 rows are complete; missing: jsq" {
		t.Errorf("%+v, %v", found, err)
	}
}

func TestParseGoal(t *testing.T) {
	for text, want := range map[string]Goal{
		"p99<=500": {99, 500}, "p99.9 <= 1.5s": {99.9, 1500}, "mean<=200ms": {0, 200}, "p50<=0.25": {50, 0.25},
	} {
		if got, err := ParseGoal(text); err != nil || got != want {
			t.Errorf("%s: %+v, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "p99", "p99<500", "p0<=1", "p101<=1", "px<=1", "median<=1", "p99<=", "p99<=0", "p99<=-1s", "p99<=NaN", "mean<=fast"} {
		if _, err := ParseGoal(text); err == nil || !strings.Contains(err.Error(), "want a") {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// TestProgressInsideARun: one long run shows how far it is, and ends soon after
// its context.
func TestProgressInsideARun(t *testing.T) {
	s := small(t, 1, "single")
	if err := s.Setting.SetRequests(20_000_000); err != nil {
		t.Fatal(err)
	}
	s.Loads = []Load{at(t, s.Setting, 0.5)}
	ctx, cancel := context.WithCancel(t.Context())
	var ended time.Time
	_, err := s.Run(ctx, func(p Progress) {
		if p.Done == 0 && p.Part > 0 && p.Part < 1 && p.Left > 0 && ended.IsZero() {
			ended = time.Now()
			cancel()
		}
	})
	if cut := (*Interrupted)(nil); !errors.As(err, &cut) || ended.IsZero() || time.Since(ended) > 2*time.Minute {
		t.Errorf("%v, %v after the context ended", err, time.Since(ended))
	}
	work := s.Loads[0].Work
	work.Watch = func(int) bool { return false }
	if _, err := sim.Run(s.Setting.Farm, s.Policies[0], work, 1); !errors.Is(err, sim.ErrStopped) {
		t.Errorf("a run that is watched and stopped ends with %v", err)
	}
}
