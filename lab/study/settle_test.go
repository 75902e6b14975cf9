package study

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"proffer/lab/sim"
)

// onA is a row of farm A; window is where the requests that count begin and end, if not
// empty.
func onA(t *testing.T, policy string, rho float64, seeds, requests int, window string) Row {
	t.Helper()
	setting, err := Named("A")
	if err != nil {
		t.Fatal(err)
	}
	if err := setting.SetRequests(requests); err != nil {
		t.Fatal(err)
	}
	if from, to, stated := strings.Cut(window, " "); stated {
		var ends [2]Bound
		for i, text := range []string{from, to} {
			if ends[i], err = ParseBound(text); err != nil {
				t.Fatal(err)
			}
		}
		if err := setting.Count(&ends[0], &ends[1]); err != nil {
			t.Fatal(err)
		}
	}
	p, err := sim.ParsePolicy(policy)
	if err != nil {
		t.Fatal(err)
	}
	s := &Study{Setting: setting, Seeds: seeds, Policies: []sim.Policy{p}, Loads: []Load{at(t, setting, rho)}}
	return runAll(t, s)[0]
}

// TestUnsettled: 80,000 requests do not warm farm A up under single at .95, where the mean is
// 1951 ms, whichever of them count; ten times as many without the first tenth come to it.
// Where nothing can be judged, the row has the reason.
func TestUnsettled(t *testing.T) {
	const truth = 1951
	for _, c := range []struct {
		seeds, requests int
		window          string
	}{
		{10, 80_000, ""}, {10, 80_000, "0.25 0.75"}, {10, 80_000, "0.5 0.6"}, {10, 80_000, "60s 90s"},
		{3, 20_000, "10s 20s"}, {3, 80_000, "0.25 1"},
	} {
		if row := onA(t, "single", 0.95, c.seeds, c.requests, c.window); !row.Unsettled || row.Unjudged != "" {
			t.Errorf("%+v: %v ± %v ms passes for settled, want %v", c, row.Mean, row.MeanCI, truth)
		}
	}
	long := onA(t, "single", 0.95, 10, 800_000, "0.1 1")
	if long.Unsettled || long.Unjudged != "" || math.Abs(float64(long.Mean)-truth) > float64(long.MeanCI) {
		t.Errorf("a long run has %v ± %v ms, unsettled: %v; want %v", long.Mean, long.MeanCI, long.Unsettled, truth)
	}
	for _, policy := range []string{"jsq", "guided", "hunt:static:4", "single"} {
		for _, window := range []string{"", "0.25 0.75", "0.5 0.6"} {
			if row := onA(t, policy, 0.87, 10, 80_000, window); row.Unsettled || row.Unjudged != "" {
				t.Errorf("%s at .87, %q, %v ± %v ms, passes for unsettled or not judged (%s)", policy, window, row.Mean, row.MeanCI, row.Unjudged)
			}
		}
	}
	for reason, c := range map[string][2]int{"fewer than 3 seeds": {1, 80_000}, "fewer than 40000 requests in all runs": {10, 100}} {
		if row := onA(t, "single", 0.95, c[0], c[1], ""); row.Unsettled || row.Unjudged != reason {
			t.Errorf("%d seeds of %d requests: unsettled: %v, not judged: %q; want %q", c[0], c[1], row.Unsettled, row.Unjudged, reason)
		}
	}
}

// TestUnjudgedTrace: of a trace the scatter is alike in all runs, and is not taken for a farm
// that fills. If all times are of it, the table states how little ± has.
func TestUnjudgedTrace(t *testing.T) {
	files := traces{"both": "arrival_s service_s\n"}
	for i := range 20_000 { // the second half of the requests takes longer
		files["both"] += fmt.Sprintf("%d %.1f\n", i, 0.1+0.2*float64(i/10_000))
	}
	const narrow = "\nwhich differ in hops and flow hashes alone\n"
	for text, want := range map[string]struct {
		unjudged string
		narrow   bool
	}{
		"service: {distribution: trace, file: both}\narrivals: {process: trace, file: both}\n":                               {"the requests are of a trace, and seeds, of which ± is, differ in hops and flow hashes alone", true},
		"service: {distribution: trace, file: both}\n":                                                                       {"the requests are of a trace", false},
		"service: {distribution: exponential, mean: 1s}\narrivals: {process: trace, file: both}\n":                           {"the requests are of a trace", false},
		"service: {distribution: exponential, mean: 100ms}\narrivals: {process: diurnal, low: 0.3, high: 0.6, period: 1h}\n": {"the rate of arrivals changes", false},
		"service: {distribution: exponential, mean: 100ms}\nevents: [{at: 1h, kind: fail, servers: 0}]\n":                    {"the farm changes", false},
	} {
		s := wantSetting(t, strings.Replace(oneServer, "count: 1", "count: 2", 1)+"requests: 20000\n"+text, files)
		load, stated, err := s.Stated()
		if err != nil {
			t.Fatal(err)
		}
		if !stated {
			load = at(t, s, 0.5)
		}
		study := &Study{Setting: s, Seeds: 3, Policies: []sim.Policy{{Name: "rr", Base: "rr"}}, Loads: []Load{load}}
		rows := runAll(t, study)
		var table strings.Builder
		if err := study.Print(&table, rows); err != nil {
			t.Fatal(err)
		}
		if rows[0].Unsettled || rows[0].Unjudged != want.unjudged || strings.Contains(table.String(), narrow) != want.narrow || !strings.Contains(table.String(), "\n? It is not known") {
			t.Errorf("unsettled: %v, not judged: %q, want %q\n%s%s", rows[0].Unsettled, rows[0].Unjudged, want.unjudged, text, table.String())
		}
	}
}
