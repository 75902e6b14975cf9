package traffic

import (
	"net/netip"
	"slices"
	"testing"
	"time"

	"proffer/lab/traffic/responder"
)

func TestSteadyIsEven(t *testing.T) {
	a, b := netip.MustParseAddrPort("192.0.2.1:1"), netip.MustParseAddrPort("192.0.2.1:2")
	want := []Request{{At: 0, From: a}, {At: 5 * ms, From: b}, {At: 10 * ms, From: a}, {At: 15 * ms, From: b}}
	if got := Steady(200, 20*ms, a, b); !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if got := Steady(200, 10*time.Second); len(got) != 2000 || got[1999] != (Request{At: 9995 * ms}) {
		t.Errorf("got %d requests, the last %v", len(got), got[len(got)-1])
	}
}

func TestSteadyOverShortConnections(t *testing.T) {
	f := newFarm(t, 2, responder.Machine{Cores: 1, Workers: 8})
	result, err := Client{To: f.addr}.Run(t.Context(), Steady(200, 500*ms))
	if err != nil || Count(result.Rows, OK) != 100 {
		t.Fatalf("got %d of 100, %v", Count(result.Rows, OK), err)
	}
	from, to := result.Gap()
	if longest := result.Longest(); longest.Latency() <= 0 || to-from < 4*ms || to > 2*time.Second {
		t.Errorf("longest %+v, gap %v to %v", longest, from, to)
	}
	t.Logf("longest %v, gap %v", result.Longest().Latency(), to-from)
}

func TestStalls(t *testing.T) {
	row := func(id int, at, done time.Duration, o Outcome) Row {
		return Row{ID: id, Intended: at, Done: done, Outcome: o}
	}
	for _, c := range []struct {
		name              string
		rows              []Row
		longest           int
		gapFrom, gapTo    time.Duration
		longestKeptClient time.Duration
	}{
		{"all well", []Row{row(0, 0, 1*ms, OK), row(1, 5*ms, 7*ms, OK)}, 1, 1 * ms, 7 * ms, 2 * ms},
		{"one slow, others answered meanwhile",
			[]Row{row(0, 0, 20*ms, OK), row(1, 5*ms, 6*ms, OK), row(2, 10*ms, 11*ms, OK)}, 0, 11 * ms, 20 * ms, 20 * ms},
		{"a failure ends no gap",
			[]Row{row(0, 0, 1*ms, OK), row(1, 5*ms, 6*ms, Reset), row(2, 10*ms, 12*ms, OK)}, 2, 1 * ms, 12 * ms, 2 * ms},
		{"never answered again", []Row{row(0, 0, 1*ms, OK), row(1, 5*ms, 105*ms, TimedOut)}, 1, 1 * ms, 105 * ms, 100 * ms},
		{"no answer", []Row{row(0, 5*ms, 9*ms, Refused)}, 0, 5 * ms, 9 * ms, 4 * ms},
	} {
		r := Result{Rows: c.rows}
		if got := r.Longest(); got.ID != c.longest || got.Latency() != c.longestKeptClient {
			t.Errorf("%s: longest %+v, want request %d, %v", c.name, got, c.longest, c.longestKeptClient)
		}
		if from, to := r.Gap(); from != c.gapFrom || to != c.gapTo {
			t.Errorf("%s: gap %v to %v, want %v to %v", c.name, from, to, c.gapFrom, c.gapTo)
		}
	}
	if from, to := (Result{}).Gap(); from != 0 || to != 0 {
		t.Error("nothing sent has a gap")
	}
}
