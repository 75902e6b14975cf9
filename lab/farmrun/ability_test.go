package farmrun

import (
	"errors"
	"strings"
	"testing"
	"time"

	"proffer/lab/traffic"
)

// TestHighest finds a machine's limit to a fifth, whatever it is, in few runs, and tries nothing far beyond it.
func TestHighest(t *testing.T) {
	for _, limit := range []float64{0, 10, 64, 90, 700, 1500, 2048, 4000, 4096, 1e9} {
		runs := 0
		got, err := Highest(func(rate float64) (bool, error) {
			if runs++; rate > 2*max(limit, leastRate) {
				t.Errorf("limit %v: %v is tried", limit, rate)
			}
			return rate <= limit, nil
		})
		least, most := limit/1.2, limit
		if limit < leastRate {
			least, most = 0, 0
		} else if limit > mostRate {
			least, most = mostRate, mostRate
		}
		if err != nil || got < least || got > most || runs > mostRuns {
			t.Errorf("limit %v: %v in %d runs, %v", limit, got, runs, err)
		}
	}
	broken := errors.New("broken")
	if _, err := Highest(func(float64) (bool, error) { return false, broken }); !errors.Is(err, broken) {
		t.Error(err)
	}
}

// TestAsks: what is said before an experiment: it can, or it cannot, and what follows from that.
func TestAsks(t *testing.T) {
	a := Asks{Rate: 300, Mean: 50 * time.Millisecond}
	late := traffic.Schedule{Mean: 2 * time.Millisecond}.For(a.Mean)
	for _, c := range []struct {
		s        traffic.Schedule
		punctual bool
		want     string
	}{
		{traffic.Schedule{Mean: time.Microsecond}.For(a.Mean), true, "this machine can: 300 requests/s"},
		{late, true, "this machine cannot send 300 requests/s on time now, so expect runs without a result and exit code 1."},
		{late, false, "this machine cannot send 300 requests/s on time now: times of this experiment will show that."},
	} {
		if a.Punctual = c.punctual; !strings.HasPrefix(a.say(c.s), c.want) {
			t.Errorf("%q, want %q", a.say(c.s), c.want)
		}
	}
}
