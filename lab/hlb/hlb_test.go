package hlb

import (
	"bytes"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"proffer/api"
	"proffer/lab/bench"
	"proffer/lab/farmrun"
	"proffer/lab/farmrun/farmtest"
	"proffer/lab/tables"
	"proffer/lab/traffic"
)

// TestDayRates: the rates that the paper's text states, and idle hours alike.
func TestDayRates(t *testing.T) {
	for hour, want := range map[int]float64{20: 800, 23: 680, 0: 640, 4: 480, 5: 440, 8: 440, 11: 440, 12: 480, 19: 760} {
		if got := dayRate(hour) * dayPeak; math.Abs(got-want) > 1e-9 {
			t.Errorf("%d:00: %v requests a second, want %v", hour, got, want)
		}
	}
	if math.Abs(lateRate*dayPeak-680) > 1e-9 {
		t.Errorf("lateRate %v", lateRate)
	}
}

func experimentOf(figures ...string) Experiment {
	return Experiment{Figures: figures, Servers: 4, Mean: 40 * time.Millisecond, For: 8 * time.Second, Seed: 1}
}

// TestHLBArrivals: whatever the kind of the requests, they have the load of the cell, and each
// policy the same ones.
func TestHLBArrivals(t *testing.T) {
	e := experimentOf()
	e.Servers, e.For = 24, 200*time.Second
	for _, kind := range []requestKind{pages, loops, files} {
		c := usual("lsq", 0.5)
		c.kind = kind
		a := e.arrivals(c)
		work, static := 0.0, 0.0
		for i, one := range a.all {
			work += one.Service.Seconds()
			if a.static[i] {
				static++
			}
		}
		if load := work / c.length(e).Seconds() / e.kinds(c).Capacity(); math.Abs(load-0.5) > 0.02 {
			t.Errorf("%s (seed %d): load %.3f, want 0.5", kind, e.Seed, load)
		}
		if share := static / float64(len(a.all)); kind == pages && math.Abs(share-staticShare) > 0.02 || kind != pages && share > 0 {
			t.Errorf("%s (seed %d): %.3f of the requests are static", kind, e.Seed, share)
		}
		c.policy = learned
		if !slices.Equal(e.arrivals(c).all, a.all) {
			t.Errorf("%s: another policy has other requests", kind)
		}
	}
	c := usual("lsq", peakLoad)
	c.course = day
	if last := e.arrivals(c).all; last[len(last)-1].At > c.length(e) || last[len(last)-1].At < c.length(e)-time.Second {
		t.Errorf("the day ends at %v, want %v", last[len(last)-1].At, c.length(e))
	}
}

// TestHLBSlowed: where servers change, they have the rate of requests of the paper.
func TestHLBSlowed(t *testing.T) {
	e := experimentOf()
	e.Servers = 24
	c := slowedCells(e)[0]
	rate := float64(len(e.arrivals(c).all)) / c.length(e).Seconds()
	if e.servers(c) != 12 || math.Abs(rate/675-1) > 0.03 {
		t.Errorf("%d servers with %.0f requests a second (seed %d), want 12 with 675", e.servers(c), rate, e.Seed)
	}
}

// TestHLBKinds: files use servers that are alike, but weights are by their cores.
func TestHLBKinds(t *testing.T) {
	e, c := experimentOf(), usual("sed", peakLoad)
	if got := e.kinds(c).Capacity(); got != 6 {
		t.Errorf("capacity %v, want 6", got)
	}
	c.kind = files
	if got := e.kinds(c).Capacity(); got != 4 {
		t.Errorf("capacity for files %v, want 4", got)
	}
	if got := e.weights(c, true); !slices.Equal(got, []int{20, 20, 10, 10}) {
		t.Errorf("inverted weights %v", got)
	}
	if c.ratio = 1; e.weights(c, false) != nil {
		t.Errorf("weights of equal servers: %v", e.weights(c, false))
	}
}

// made is a report with a result for each cell, in which a policy's requests take the time that
// took gives, and the weights of LBs that learn go from 2 to 1 so many seconds after the change.
func made(e Experiment, took func(policy string) time.Duration, follows float64) *Report {
	r := &Report{experiment: e}
	for _, f := range allFigures() {
		if len(e.Figures) > 0 && !slices.Contains(e.Figures, f.name) {
			continue
		}
		for _, c := range f.runs(e) {
			if r.find(c) == nil {
				r.results = append(r.results, madeResult(e, c, took(c.policy), follows))
			}
		}
		if f.cost {
			r.costs = costs([]bench.Result{
				{Program: "lb", Mode: "single-128", Case: "short-apart", Flows: 9, Net: 300},
				{Program: "lb", Mode: "learned-128", Case: "short-apart", Flows: 9, Net: 400},
				{Program: "floor", Mode: "", Case: "line", Flows: 9, Net: 1},
			})
		}
		r.conclude(f)
	}
	return r
}

func madeResult(e Experiment, c cell, took time.Duration, follows float64) *result {
	run, end := &farmrun.Result{Kinds: e.kinds(c)}, c.length(e)
	var static []bool
	for at := time.Duration(0); at < end; at += 20 * time.Millisecond {
		id := len(run.Rows)
		row := traffic.Row{ID: id, Intended: at, Done: at + took, Service: time.Millisecond, Server: []string{"s1", "s4", "s3"}[id%3], Outcome: traffic.OK}
		if id == 7 {
			row.Outcome = traffic.Refused
		}
		run.Rows, static = append(run.Rows, row), append(static, id%2 == 0)
		run.Loads.Add(at.Seconds(), []float64{1, 0, 2, 2})
	}
	var beliefs []belief
	for at := 0.0; at < end.Seconds() && c.policy == learned; at += askEvery.Seconds() {
		weight := 2.0
		if at >= e.slowedAt().Seconds()+follows {
			weight = 1
		}
		for lb := range c.lbs {
			d := 0.1
			all := make([]api.LearnedStatus, e.servers(c))
			for i := range all {
				all[i] = api.LearnedStatus{Weight: 1, Mean: &d, Established: uint32(i)}
				if inSecond(run.Kinds, i) {
					all[i].Weight = weight
				}
			}
			beliefs = append(beliefs, belief{at, lb, all})
		}
	}
	return e.result(c, run, static, beliefs)
}

// better is learned as fast as it is to be.
func better(policy string) time.Duration {
	return map[string]time.Duration{"lsq": 100, "sed": 85, "sed" + farmrun.Inverted: 120, learned: 84}[policy]*time.Millisecond + time.Millisecond
}

// withAll asks for all policies of figures, whichever the data plane has.
func withAll(e Experiment) Experiment {
	for _, f := range allFigures() {
		e.Policies = append(e.Policies, f.policies...)
	}
	return e
}

// TestHLBReport: each figure is drawn, has its row a run, and a value of the paper's beside ours.
func TestHLBReport(t *testing.T) {
	e := withAll(experimentOf())
	e.Out = t.TempDir()
	r := made(e, better, 2)
	if err := r.Holds(); err != nil {
		t.Error(err)
	}
	paths, err := tables.Save(t.TempDir(), r.Files()...)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"7", "8-pages", "8-static", "9", "11", "14", "16a", "16b", "20", "21", "23", "23-pages", "23-static", "24"} {
		for _, ending := range []string{".svg", ".png", ".csv"} {
			if !slices.ContainsFunc(paths, func(p string) bool { return strings.HasSuffix(p, "/hlb-"+name+ending) }) {
				t.Errorf("hlb-%s%s is missing", name, ending)
			}
		}
	}
	for _, f := range r.figures {
		if len(f.Published) == 0 || len(f.Runs)+len(f.Costs) == 0 {
			t.Errorf("figure %s: %+v", f.Figure, f)
		}
	}
	row := r.find(usual(learned, peakLoad)).row
	if row.Failed != 1 || row.Weights != 2 || math.Abs(row.Queue-0.8) > 1e-9 || math.Abs(row.Fast-2.0/3) > 0.01 || math.Abs(row.P90-0.085) > 1e-9 {
		t.Errorf("%+v", row)
	}
	var text bytes.Buffer
	if err := r.Print(&text); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"Figure 23: ", "HLB's weights before and after", "2.00 and 1.00", "2.2 s", "packet rate of HLB, of that by hash", "75.0 %", "23.66 %"} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("the report lacks %q:\n%s", want, text.String())
		}
	}
}

// TestHLBHolds: each goal that is missed is named, but by a quick run; and each run without a
// result.
func TestHLBHolds(t *testing.T) {
	e := withAll(experimentOf("9", "23"))
	slow := func(policy string) time.Duration { return 100 * time.Millisecond }
	err := made(e, slow, 6).Holds()
	for _, want := range []string{"1.00 of that of lsq", "1.00 of that of sed:inverted", "took 6.2 s to follow"} {
		farmtest.Holds(t, want, err, want)
	}
	slower := func(policy string) time.Duration {
		return better(policy) + map[string]time.Duration{learned: 10 * time.Millisecond}[policy]
	}
	farmtest.Holds(t, "weights that stay", made(e, better, 99).Holds(), "took 12.0 s to follow")
	farmtest.Holds(t, "beside sed", made(e, slower, 2).Holds(), "1.10 of that of sed, and is to be 1.10")
	e.Quick = true
	r := made(e, slow, 6)
	if err := r.Holds(); err != nil {
		t.Error(err)
	}
	r.unclaimed = []unclaimed{{usual("awcmp", peakLoad), "late"}}
	farmtest.Holds(t, "unclaimed", r.Holds(), "awcmp, 2 LBs, 1:2, ρ 0.885, pages: late")
}

// TestHLBDuration: a run that several figures need is made once, and --quick takes less than four
// minutes.
func TestHLBDuration(t *testing.T) {
	e := withAll(experimentOf("7", "8"))
	if got := len(e.allRuns()); got != len(policies) {
		t.Errorf("%d runs of a day, want %d", got, len(policies))
	}
	e = experimentOf()
	e.Policies, e.Quick, e.For = []string{"lsq", "sed", "sed" + farmrun.Inverted, learned}, true, 1500*time.Millisecond
	if got := e.Duration(); got > 4*time.Minute {
		t.Errorf("--quick takes %v", got)
	}
}

// TestHLBFigureJSON: a figure names the runs of it that have no result, and a goal of ours is no
// value of the paper's.
func TestHLBFigureJSON(t *testing.T) {
	e := withAll(experimentOf("9", "23"))
	late := usual("gsq2", peakLoad)
	r := &Report{experiment: e, unclaimed: []unclaimed{{late, "late"}}}
	for _, f := range e.asked() {
		for _, c := range f.runs(e) {
			if c != late {
				r.results = append(r.results, madeResult(e, c, better(c.policy), 2))
			}
		}
		r.conclude(f)
	}
	text, err := json.Marshal(r.JSON())
	if err != nil {
		t.Fatal(err)
	}
	for want, times := range map[string]int{
		`"unclaimed":[{"policy":"gsq2, 2 LBs, 1:2, ρ 0.885, pages","reason":"late"}]`: 1,
		`"unclaimed":[]`: 1,
		`"shows":"nine tenths of that way","published":"","goal":"5 s at most","ours":"2.2 s"`: 1,
	} {
		if got := strings.Count(string(text), want); got != times {
			t.Errorf("%d times %s, want %d:\n%s", got, want, times, text)
		}
	}
}

// TestHLBDayFits: the axis of the response times ends at them.
func TestHLBDayFits(t *testing.T) {
	e := withAll(experimentOf("7"))
	e.Out = t.TempDir()
	made(e, better, 2)
	picture, err := os.ReadFile(filepath.Join(e.Out, "hlb-7.svg"))
	if err != nil {
		t.Fatal(err)
	}
	for _, label := range regexp.MustCompile(`>([0-9]+)</text>`).FindAllStringSubmatch(string(picture), -1) {
		if n, _ := strconv.Atoi(label[1]); n > 200 {
			t.Errorf("the picture has a mark at %s ms, and no time is above 121", label[1])
		}
	}
}
