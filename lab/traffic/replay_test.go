package traffic

import (
	"math"
	"slices"
	"testing"
	"time"
)

func TestReplayKeepsServersApart(t *testing.T) {
	rows := []Row{
		{Server: "b", Intended: 5 * ms, Service: 10 * ms},
		{Server: "a", Intended: 10 * ms, Service: 10 * ms}, // out of order, as rows may be
		{Server: "a", Intended: 0, Service: 20 * ms},
		{Server: "", Intended: 1 * ms, Service: time.Hour},
	}
	// On a: alone until 10 ms, then both share and end together at 30 ms.
	want := []time.Duration{10 * ms, 20 * ms, 30 * ms, 0}
	if got := Replay(rows, Alike(Machine{Cores: 1, Workers: 2})); !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestFidelityComparesWhatWasAnswered(t *testing.T) {
	rows := []Row{
		{Server: "a", Service: 10 * ms, Done: 11 * ms, Outcome: OK},
		{Server: "a", Intended: 50 * ms, Service: 10 * ms, Done: 60 * ms, Outcome: OK},
		{Server: "a", Intended: 90 * ms, Service: 10 * ms, Done: time.Hour, Outcome: Reset},
		{Intended: 90 * ms, Service: 10 * ms, Done: time.Hour, Outcome: Refused},
	}
	if got := Fidelity(rows, Alike(Machine{Cores: 1, Workers: 2})); math.Abs(got-1.05) > 1e-12 {
		t.Errorf("got %v, want 21 ms / 20 ms", got)
	}
}
