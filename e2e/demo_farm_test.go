package e2e

import (
	"strings"
	"testing"
	"time"

	"proffer/lab/experiment"
	"proffer/lab/testbed"
	"proffer/policy"
	"proffer/topo"
)

// TestHuntingFindsFreeServers is the paper's main result, small: the same
// arrivals, at ρ = .88, spread by hash and hunted. Our simulation gives 2.1 to
// 2.3 for the ratio of the means.
func TestHuntingFindsFreeServers(t *testing.T) {
	const tries = 5
	e := experiment.SRLB{Load: 0.88, Servers: 12, Cores: 2, Workers: 32, Requests: 6000,
		Mean: 40 * time.Millisecond, Seed: 2, Programs: proffer, Policies: []topo.Policy{parsed(t, "single"), parsed(t, "hunt:static:4")}}
	var report *experiment.Report
	var err error
	for range tries {
		report, err = e.Run(t.Context(), func(experiment.Progress) {})
		if err == nil || !strings.Contains(err.Error(), lateness) {
			break
		}
		t.Log(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	single, hunt := report.Policies[0], report.Policies[1]
	t.Logf("single %+v", single)
	t.Logf("hunt   %+v", hunt)
	if ratio := single.Mean / hunt.Mean; ratio < 1.3 {
		t.Errorf("mean %.1f ms alone, %.1f ms hunting: ratio %.2f", single.Mean*1e3, hunt.Mean*1e3, ratio)
	}
	if hunt.Resets+hunt.Refusals+hunt.Timeouts+hunt.Errors != 0 {
		t.Errorf("hunting: %d resets, %d refusals, %d timeouts, %d errors", hunt.Resets, hunt.Refusals, hunt.Timeouts, hunt.Errors)
	}
	if hunt.Fairness <= single.Fairness {
		t.Errorf("fairness %.3f alone, %.3f hunting", single.Fairness, hunt.Fairness)
	}
	if hunt.First <= 0.5 || hunt.First >= 1 || single.First != 1 {
		t.Errorf("the first candidate took %.2f alone, %.2f hunting", single.First, hunt.First)
	}
}

func parsed(t *testing.T, spelt string) topo.Policy {
	t.Helper()
	p, err := policy.Parse(spelt)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// TestFarmsComeAndGo: 12 and 48 servers with their daemons, and nothing left.
// How long it took is for the reader: the targets are 1 s and 3 s.
func TestFarmsComeAndGo(t *testing.T) {
	for _, servers := range []int{12, 48} {
		begin := time.Now()
		bed, err := testbed.Up(t.Context(), testbed.Config{Servers: servers})
		if err != nil {
			t.Fatal(err)
		}
		defer bed.Close()
		built := time.Since(begin)
		s := settings(t, "hunt:static:4")
		s.Programs = proffer
		farm, err := experiment.Start(t.Context(), bed, s)
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%d servers: built in %v, daemons ready after %v", servers, built.Round(time.Millisecond), time.Since(begin).Round(time.Millisecond))
		pids := []int{farm.Daemon(bed.LBs[0]).Pid()}
		for _, n := range bed.Servers {
			pids = append(pids, farm.Daemon(n).Pid())
		}
		if len(pids) != servers+1 {
			t.Errorf("%d daemons", len(pids))
		}
		if err := farm.Stop(); err != nil {
			t.Error(err)
		}
		if err := bed.Close(); err != nil {
			t.Error(err)
		}
		if left := remainsOf(t, bed.Run); len(left) > 0 {
			t.Errorf("left behind: %v", left)
		}
	}
}
