package lab

import (
	"encoding/json"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"proffer/lab/traffic"
)

// TestDemoFastServers: servers of --speed 2 serve in half the time, and the right weights and
// the wrong ones are those of the LBs' configuration. A request is never done before its work
// is; that some of the fast servers' are done in less than their service time at a speed of 1
// needs no quiet machine.
func TestDemoFastServers(t *testing.T) {
	d := unhurried(t, 100*time.Millisecond, "--servers", "4", "--fast-servers", "2", "--speed", "2", "--lbs", "2", "--policies", "single,single:inverted,learned",
		"--requests", "120", "--load", "0.5")
	var report struct {
		Policies []struct {
			Policy    string  `json:"policy"`
			FastShare float64 `json:"fast_share"`
			First     float64 `json:"first_accept"`
		} `json:"policies"`
	}
	if err := json.Unmarshal(d.stdout.Bytes(), &report); err != nil || len(report.Policies) != 3 {
		t.Fatalf("%v: %s", err, d.stdout.String())
	}
	for i, want := range []struct {
		policy      string
		least, most float64
	}{{"single", 0.5, 0.85}, {"single:inverted", 0.15, 0.5}, {"learned", 0.1, 1}} {
		p := report.Policies[i]
		if p.Policy != want.policy || !(p.FastShare >= want.least && p.FastShare <= want.most) || p.First != 1 {
			t.Errorf("%+v, want %+v", p, want)
		}
	}
	for _, name := range []string{"single", "single-inverted", "learned"} {
		wantSpeeds(t, filepath.Join(d.out, "rows-"+name+".csv"))
	}
}

// wantSpeeds holds the response times of a run to the servers' speeds.
func wantSpeeds(t *testing.T, path string) {
	t.Helper()
	rows := readRows(t, path)
	if len(rows) != 120 {
		t.Fatalf("%s: %d rows", path, len(rows))
	}
	sooner := 0
	for _, r := range rows {
		speed := 1.0
		if slices.Contains([]string{"s3", "s4"}, r.Server) {
			speed = 2
		}
		if r.Outcome != traffic.OK || r.Latency().Seconds() < r.Service.Seconds()/speed {
			t.Fatalf("%s: a request of %v on %s: %+v", path, r.Service, r.Server, r)
		}
		if r.Latency() < r.Service {
			sooner++
		}
	}
	if sooner == 0 {
		t.Errorf("%s: no request was done sooner than on a server of speed 1", path)
	}
}
