package demo

import (
	"math"
	"testing"
	"time"

	"proffer/lab/farmrun"
)

// chosen has nothing given but four policies and the load.
func chosen(load float64) Experiment {
	return Experiment{Kinds: farmrun.Kinds{Cores: 2, Workers: 32}, Policies: make([]farmrun.Compared, 4), Load: load}
}

// TestFit: machines of all kinds get a load that they were seen to bear, and that ends in time.
func TestFit(t *testing.T) {
	second := time.Second
	for _, c := range []struct {
		name           string
		able           farmrun.Ability
		servers        int
		mean           time.Duration
		least, most    int  // requests
		slower, longer bool // it is asked for more than it was seen to bear; than two minutes
	}{
		{"fast", farmrun.Ability{Rate: 4096, Around: second}, 12, 10 * time.Millisecond, 30000, 30000, false, false},
		{"usual", farmrun.Ability{Rate: 1500, Around: 2 * second}, 12, 21 * time.Millisecond, 22000, 27000, false, false},
		{"slow", farmrun.Ability{Rate: 250, Around: 5 * second}, 8, 90 * time.Millisecond, 1500, 3000, false, false},
		{"slower", farmrun.Ability{Rate: 64, Around: 6 * second}, 4, 160 * time.Millisecond, 500, 1000, false, false},
		{"cannot", farmrun.Ability{Rate: 0, Around: second}, 4, 800 * time.Millisecond, 100, 300, true, false},
		{"no number", farmrun.Ability{Rate: math.NaN(), Around: second}, 4, 800 * time.Millisecond, 100, 300, true, false},
		{"negative", farmrun.Ability{Rate: -1, Around: -second}, 4, 800 * time.Millisecond, 100, 300, true, false},
		{"without end", farmrun.Ability{Rate: math.Inf(1), Around: second}, 12, 10 * time.Millisecond, 30000, 30000, false, false},
		{"minutes a start", farmrun.Ability{Rate: 1500, Around: 5 * time.Minute}, 12, 21 * time.Millisecond, 100, 100, false, true},
	} {
		e := chosen(0.88).Fit(c.able, 110*second)
		within10 := func(got, want time.Duration) bool { return got >= want*9/10 && got <= want*11/10 }
		if e.Servers != c.servers || !within10(e.Mean, c.mean) || e.Requests < c.least || e.Requests > c.most || !e.Given() {
			t.Errorf("%s: %d servers, %v, %d requests; want %d, about %v, %d to %d", c.name, e.Servers, e.Mean, e.Requests, c.servers, c.mean, c.least, c.most)
		}
		if slower := e.rate() > c.able.Rate || math.IsNaN(c.able.Rate); slower != c.slower {
			t.Errorf("%s: it is asked for %.0f/s", c.name, e.rate())
		}
		if longer := e.Duration() > 110*second; longer != c.longer {
			t.Errorf("%s: takes %v", c.name, e.Duration())
		}
	}
}

// TestFitGiven: what is given stays, on any machine.
func TestFitGiven(t *testing.T) {
	for _, able := range []farmrun.Ability{{}, {Rate: 1500, Around: time.Second}, {Rate: math.Inf(1)}} {
		e := chosen(0.5)
		e.Servers = 20
		if e = e.Fit(able, time.Minute); e.Servers != 20 || e.Mean == 0 || e.Requests == 0 {
			t.Errorf("%+v", e)
		}
		e = chosen(0.5)
		e.Mean, e.Requests = 7*time.Millisecond, 123
		if e = e.Fit(able, time.Minute); e.Mean != 7*time.Millisecond || e.Requests != 123 || e.maySlow() {
			t.Errorf("%+v", e)
		}
		e = chosen(0.5)
		e.Fast, e.Speed = 10, 2
		if e = e.Fit(able, time.Minute); e.Servers != MostServers {
			t.Errorf("%d servers, 10 of them fast", e.Servers)
		}
	}
}

// TestSlower: half the requests a second, and no more than the time that is left has room for; at the
// longest mean it goes no lower.
func TestSlower(t *testing.T) {
	e := chosen(0.88).Fit(farmrun.Ability{Rate: 1500, Around: time.Second}, 110*time.Second)
	e.until = time.Now().Add(time.Minute)
	before := e
	if e = e.slower(); e.Mean != 2*before.Mean || e.Duration() > time.Minute || e.Requests >= before.Requests/2 {
		t.Errorf("%v, %d requests, %v", e.Mean, e.Requests, e.Duration())
	}
	for range 20 {
		if !e.maySlow() {
			break
		}
		e = e.slower()
	}
	if e.maySlow() || e.Mean > longestMean {
		t.Errorf("%v", e.Mean)
	}
}

// TestInTime: a run is made again only if it and the runs after it have the time.
func TestInTime(t *testing.T) {
	e := chosen(0.88).Fit(farmrun.Ability{Rate: 1500, Around: time.Second}, 110*time.Second)
	each := e.runDuration() + e.aroundRun()
	if !e.inTime(3) {
		t.Error("the load is given: there is no end")
	}
	if e.until = time.Now().Add(2*each + time.Second); !e.inTime(1) || e.inTime(2) {
		t.Errorf("after %v", 2*each)
	}
}
