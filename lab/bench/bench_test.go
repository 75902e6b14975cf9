package bench

import (
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"proffer/dataplane"
	"proffer/lab/farmrun"
	"proffer/lab/tables"
)

func bench(t *testing.T, turns int, rows string, flows ...int) (*Report, error) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Fatal("not root: the bench loads eBPF programs; run it with sudo")
	}
	cpu, err := LastCPU()
	if err != nil {
		t.Fatal(err)
	}
	b := &Bench{CPU: cpu, Turns: turns, Flows: flows, Rows: regexp.MustCompile(rows)}
	if err := b.Check(); err != nil {
		t.Fatal(err)
	}
	return b.Run(t.Context(), func(farmrun.Step) {}, func(string) {})
}

// regressed is the factor by which a path's cost, without the bench's own loop and as a ratio
// to its floor's, may exceed the recorded one. Two readings of the clock are twice the cost of
// the shortest paths: that must not pass.
const regressed = 1.6

// recordedPath is a row's least recorded cost, as a ratio to that of a floor.
type recordedPath struct {
	floor string
	ratio float64
}

const lineHundred = "floor//line/100000"

// recorded are the ratios of each path: the least of several sessions of TestBenchRegression, on
// the machine where that is most: a call of the kernel's costs ten times as much on some.
func recorded() map[string]recordedPath {
	return map[string]recordedPath{
		"lb/hunt/steer/1000":              {lineFew, 2.1},
		"lb/hunt/steer/100000":            {lineHundred, 1.5},
		"lb/hunt/offer/250000":            {lineHundred, 1.75},
		"lb/hunt/new-filling/100000":      {lineHundred, 3.9},
		"agent/hunt/not-ours/1":           {lineFew, 0.19},
		"agent/hunt/offer-accept/100000":  {lineHundred, 5.1},
		"agent/hunt/offer-pass-on/100000": {lineHundred, 3.55},
		"agent/hunt/established/1000":     {lineFew, 22},
		"agent/hunt/steer/1000":           {lineFew, 2.6},
		"agent/hunt/egress-direct/1000":   {lineFew, 3.4},
	}
}

// TestBenchRegression fails when a path costs more than it did. A neighbour may spoil one
// session; a regression spoils all.
func TestBenchRegression(t *testing.T) {
	const sessions = 5
	ratios, clock := map[string]float64{}, 0.0
	for range sessions {
		report, err := bench(t, 4, `^(floor//clock|lb/hunt/(steer|offer|new-filling)|agent/hunt/(not-ours|established|steer|egress-direct|offer-.*))/`, 1000, 100_000)
		if err != nil {
			t.Fatal(err)
		}
		slow := false
		for _, row := range report.Rows {
			name := row.Name()
			if was, known := recorded()[name]; known {
				ratio := row.Net / report.row(was.floor).Net
				if least, seen := ratios[name]; !seen || ratio < least {
					ratios[name] = ratio
				}
				slow = slow || ratios[name] > regressed*was.ratio
			}
			if name == "floor//clock/1" {
				clock = max(clock, row.Net/report.row("floor//line/1000").Net)
			}
		}
		if !slow {
			break
		}
	}
	for name, was := range recorded() {
		now, measured := ratios[name]
		if !measured || now > regressed*was.ratio {
			t.Errorf("%s: %.2f times %s (measured: %v), %.2f when the bound was set", name, now, was.floor, measured, was.ratio)
		}
		t.Logf("%s: %.2f times its floor", name, now)
	}
	// The shortest path has the most room beside its bound.
	if room, added := (regressed-1)*recorded()["lb/hunt/steer/1000"].ratio, 2*clock; added < room {
		t.Errorf("two readings of the clock, %.2f times the floor, would pass beside %.2f", added, room)
	}
}

// TestBenchRows: every row that there is measures the path that it is about, and
// has every field that --json promises.
func TestBenchRows(t *testing.T) {
	report, err := bench(t, 1, "", 1, 1000)
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(report.JSON())
	if err != nil {
		t.Fatal(err)
	}
	var rows []map[string]any
	if err := json.Unmarshal(text, &rows); err != nil {
		t.Fatal(err)
	}
	cases := map[string]bool{}
	for _, row := range rows {
		for _, field := range []string{"program", "mode", "case", "flows", "packets", "min_ns", "median_ns", "spread_ns", "clean_runs", "runs", "floor_ratio", "net_ns", "net_floor_ratio"} {
			if _, ok := row[field]; !ok {
				t.Errorf("row %v lacks %s", row, field)
			}
		}
		cases[row["program"].(string)+" "+row["mode"].(string)+" "+row["case"].(string)] = true
		if row["runs"] != 1.0 && row["runs"] != float64(parts) || !(row["min_ns"].(float64) > 0) || !(row["floor_ratio"].(float64) > 0) {
			t.Errorf("row %v: no measurement", row)
		}
	}
	for _, want := range []string{
		"floor  loop", "floor  adjust-head", "floor  encapsulate", "floor  line", "floor  hash", "floor  lru-hash",
		"floor  lru-hash-filling", "floor  lru-hash-full", "floor  clock", "floor  calls", "floor  helpers",
		"lb hunt steer", "lb hunt offer", "lb hunt new-filling", "lb hunt new-full", "lb hunt establish", "lb hunt recover",
		"lb hunt recovered", "lb hunt signal", "lb hunt signal-removed", "lb hunt mixed", "lb single mixed",
		"lb hunt offer-signed", "lb hunt new-filling-signed", "lb hunt signal-signed",
		"floor  loop-3", "floor  loop-104", "lb hunt opening", "lb hunt opening-apart", "lb hunt opening-apart-full",
		"lb hunt opening-end-apart", "lb hunt connection-1", "lb hunt connection-10", "lb hunt connection-100",
		"lb hunt connection-1-apart", "lb hunt connection-1-apart-full",
		"lb hunt-insert steer", "lb hunt-ipv4 steer", "lb single steer", "lb single-insert steer", "lb single-ipv4 steer", "lb learned steer", "lb hunt steer-kept",
		"lb single-128 short-apart", "lb ecmp-128 short-apart", "lb learned-128 short-apart",
		"agent hunt not-ours", "agent hunt offer-accept", "agent hunt offer-pass-on", "agent hunt steer",
		"agent hunt established", "agent hunt egress-not-ours", "agent hunt egress-direct", "agent hunt egress-wait",
		"edge lb steer", "edge lb begin", "edge lb-ipv4 steer", "edge lb-ipv4 begin", "edge node through", "edge node-ipv4 through",
		"work  switch", "work  threads", "work  events", "floor  switch-alone", "floor  switch-hooks", "floor  threads-alone", "floor  events-alone",
	} {
		if !cases[want] {
			t.Errorf("there is no row %q", want)
		}
	}
	if allowed, err := farmrun.AllowedCPUs(); err != nil || len(allowed) > 1 && !cases["lb hunt steer-contended"] {
		t.Errorf("no row has a second CPU beside it (%v)", err)
	}
	if report.flowBytes < 16 || report.flowBytes > mostBytes {
		t.Errorf("a flow takes %.1f bytes of the flow table", report.flowBytes)
	}
	paths, err := tables.Save(t.TempDir(), report.Files()...)
	if err != nil || len(paths) != 3 {
		t.Errorf("drawn: %v, %v", paths, err)
	}
}

// TestBenchConnection: a connection's time is that of all its packets, and longer than that
// of the fewer packets of another.
func TestBenchConnection(t *testing.T) {
	report, err := bench(t, 2, `^lb/hunt/(opening|connection-(1|10|100))/`, 1_000_000)
	if err != nil {
		t.Fatal(err)
	}
	last := 0.0
	for name, packets := range map[string]int{"opening/20000": 3, "connection-1/20000": 5, "connection-10/17857": 14, "connection-100/2403": 104} {
		row, loop := report.row("lb/hunt/"+name), report.row(fmt.Sprintf("floor//loop-%d/1", packets))
		if row == nil || loop == nil {
			t.Errorf("%s or its loop was not measured", name)
			continue
		}
		// The loop's least time may be one beside this row, below that of its own row.
		taken := row.Min - row.Net
		if row.Packets != packets || row.Min < float64(10*packets) || taken > loop.Min+0.001 || taken < loop.Min/2 {
			t.Errorf("%s: %+v beside %+v", name, row, loop)
		}
		last = max(last, row.Net)
	}
	if long := report.row("lb/hunt/connection-100/2403"); last != long.Net {
		t.Errorf("100 packets of data take %.0f ns, a shorter connection %.0f", long.Net, last)
	}
}

// TestBenchOtherPath: packets that do not take the path of their row are an error
// that names the row, the counter and both numbers.
func TestBenchOtherPath(t *testing.T) {
	s := newSession(&Bench{Turns: 1, Flows: []int{1000}, Rows: regexp.MustCompile("^lb/hunt/steer/1000$")})
	s.show, s.note = func(farmrun.Step) {}, func(string) {}
	s.CPU, _ = LastCPU()
	err := onCPU(s.CPU, func() error {
		if err := place(); err != nil {
			t.Error(err)
		}
		for _, row := range s.rows {
			if row.program == "lb" {
				setup := row.setup
				row.setup = func() error { // half of the flows stay unknown
					lb, err := s.lb(lbKnown)
					if err != nil {
						return err
					}
					lb.known[row.mode] = 500
					return setup()
				}
			}
		}
		return s.measure(t.Context())
	})
	defer s.close()
	want := regexp.MustCompile(`measure lb/hunt/steer/1000: counter (steer|recover) moved by \d+, expected (62500|0) of 62500 packets`)
	if err == nil || !want.MatchString(err.Error()) {
		t.Errorf("half of the flows are unknown: %v", err)
	}
}

func TestMoved(t *testing.T) {
	before := []dataplane.Counter{{Name: "steer", Value: 5}, {Name: "recover", Value: 7}}
	for _, c := range []struct {
		steer, recover uint64
		want           counts
		ok             bool
	}{
		{100_000, 0, counts{"steer": 1}, true},
		{99_950, 50, counts{"steer": 1}, true}, // one in 1,000 may stray
		{99_800, 200, counts{"steer": 1}, false},
		{100_000, 200, counts{"steer": 1}, false},
		{90_000, 10_000, counts{"steer": 0.9, "recover": 0.1}, true},
		{100_000, 0, counts{"steer": 0.9, "recover": 0.1}, false},
		{0, 0, counts{"steer": 1}, false},
		{100_000, 0, counts{"steer": 1, "no_such": 0}, false},
	} {
		after := []dataplane.Counter{{Name: "steer", Value: 5 + c.steer}, {Name: "recover", Value: 7 + c.recover}}
		if err := moved(before, after, 100_000, c.want); (err == nil) != c.ok {
			t.Errorf("steer %d, recover %d, want %v: %v", c.steer, c.recover, c.want, err)
		}
	}
}

// TestClean: a run counts if the spins around it were fast and no statistics kept.
func TestClean(t *testing.T) {
	const ms = time.Millisecond
	row := []timing{
		{ns: 30, before: spins{100 * ms, 50 * ms, 20 * ms}, after: spins{110 * ms, 50 * ms, 20 * ms}},
		{ns: 20, before: spins{100 * ms, 50 * ms, 20 * ms}, after: spins{111 * ms, 50 * ms, 20 * ms}},
		{ns: 10, before: spins{111 * ms, 50 * ms, 20 * ms}, after: spins{100 * ms, 50 * ms, 20 * ms}},
		{ns: 11, before: spins{100 * ms, 50 * ms, 20 * ms}, after: spins{100 * ms, 56 * ms, 20 * ms}},
		{ns: 12, before: spins{100 * ms, 50 * ms, 23 * ms}, after: spins{100 * ms, 50 * ms, 20 * ms}},
		{ns: 40, before: spins{100 * ms, 50 * ms, 20 * ms}, after: spins{100 * ms, 50 * ms, 20 * ms}, counted: true},
		{ns: 25, before: spins{105 * ms, 52 * ms, 21 * ms}, after: spins{105 * ms, 52 * ms, 21 * ms}},
	}
	got := sorted(clean(row, fastest([][]timing{row})), func(r timing) float64 { return r.ns })
	if !slices.Equal(got, []float64{25, 30}) {
		t.Errorf("clean: %v", got)
	}
	busy := &Report{clean: 1, runs: 11, counted: 1}
	if err := busy.Holds(); err == nil || !strings.Contains(err.Error(), "too busy to measure: 1 of 11 runs") || !strings.Contains(err.Error(), "statistics") {
		t.Errorf("1 of 11 clean: %v", err)
	}
	if err := (&Report{clean: 1, runs: 10}).Holds(); err != nil {
		t.Errorf("a tenth clean: %v", err)
	}
}

// TestFloorOf: a row stands on the floor of as many flows, or of the next more.
func TestFloorOf(t *testing.T) {
	s := newSession(&Bench{Turns: 1, Flows: []int{1, 1000, 1_000_000}})
	for _, c := range []struct{ flows, floor int }{{1, 1}, {2, 1000}, {1000, 1000}, {100_000, 1_000_000}, {4_000_000, 1_000_000}} {
		if got := s.floorOf(&benchRow{flows: c.flows, floor: "line"}).flows; got != c.floor {
			t.Errorf("%d flows stand on the floor of %d, want %d", c.flows, got, c.floor)
		}
	}
}

// TestSpin: each kind of work takes time, and a chain of reads or of branches more than its
// instructions do, as no processor foresees the next of them: by the least of both, which
// other work on the machine takes a while to let through.
func TestSpin(t *testing.T) {
	ring := make([]uint32, len(chased()))
	for i := range ring {
		ring[i] = uint32(i) // in the first cache
	}
	best, easy := spins{time.Hour, time.Hour, time.Hour}, spins{time.Microsecond, time.Hour, time.Hour}
	slower := func(kind int) bool { return float64(best[kind]) >= 1.5*float64(easy[kind]) }
	for begin, rounds := time.Now(), 0; rounds < 20 || !slower(0) || !slower(1) || !slower(2); rounds++ {
		if time.Since(begin) > 5*time.Minute {
			t.Fatalf("multiplications, reads and branches take %v, and %v where they are foreseen", best, easy)
		}
		best = fastest([][]timing{{{before: best, after: spin()}}})
		began := time.Now()
		chase(ring)
		easy[1] = min(easy[1], time.Since(began))
		began = time.Now()
		branch(0) // never taken
		easy[2] = min(easy[2], time.Since(began))
	}
	t.Logf("%v, foreseen %v", best, easy)
}

// TestPart: the parts of a pass are all its flows, each once.
func TestPart(t *testing.T) {
	p := pass{packets: 100}
	p.drill.First, p.drill.Tags = 7, make([]uint64, 100)
	for i := range p.drill.Tags {
		p.drill.Tags[i] = uint64(i)
	}
	for i := range parts {
		part := p.part(i)
		if part.packets != 25 || part.drill.First != uint32(7+25*i) || len(part.drill.Tags) != 25 || part.drill.Tags[0] != uint64(25*i) {
			t.Errorf("part %d of a sequence: %+v", i, part)
		}
	}
	p = connection{data: 1, ends: true}.pass(nil, modes()[0], 20)
	if part := p.part(3); part.packets != 25 || part.drill.First != 15 {
		t.Errorf("the last of twenty connections: %d packets from flow %d on", part.packets, part.drill.First)
	}
	p = pass{packets: 400}
	p.drill.Flows, p.drill.First, p.drill.OpensEvery, p.drill.Opened = 1000, 5, 10, 50
	if part := p.part(2); part.packets != 100 || part.drill.First != 5 || part.drill.Opened != 70 {
		t.Errorf("the third part of random flows: %+v", part)
	}
}
