package study

import (
	"errors"
	"math"
	"strings"
	"testing"

	"proffer/lab/sim"
	"proffer/lab/stats"
)

func someRows() []Row {
	nan := stats.Number(math.NaN())
	return []Row{
		{Policy: "single", Farm: "A", Rho: 0.5, Seeds: 10, Mean: 254.1875, MeanCI: 1.7, P50: 164.25, P90: 590.4, P90CI: 8.25, P99: 1321.5, Hops: 1, Events: 500, Speed: 9_950_000, Counted: 1000},
		{Policy: "hunt:dynamic", Farm: "A", Rho: 0.610714286, Seeds: 10, Mean: 22, MeanCI: stats.Number(math.Inf(1)), P50: nan, P90: nan, P90CI: nan, P99: nan, Hops: 1.416, Refused: 15, Events: 7, Speed: 12_000_000, Counted: 1000},
	}
}

func TestTableCSV(t *testing.T) {
	rows := someRows()
	const want = `policy,farm,rho,seeds,mean_ms,mean_ci_ms,p50_ms,p90_ms,p90_ci_ms,p99_ms,refused,hops,events,events_per_s
single,A,0.5,10,254.1875,1.7,164.25,590.4,8.25,1321.5,0,1,500,9950000
hunt:dynamic,A,0.610714286,10,22,,,,,,15,1.416,7,12000000
`
	wantText(t, want, func(b *strings.Builder) error { return Table(rows).CSV(b) })
	rows[1].Overload = true
	marked := strings.NewReplacer("_per_s\n", "_per_s,bounded\n", "9950000\n", "9950000,false\n", "12000000\n", "12000000,true\n").Replace(want)
	wantText(t, marked, func(b *strings.Builder) error { return Table(rows).CSV(b) })
}

func TestTableJSON(t *testing.T) {
	const want = `[
  {
    "policy": "hunt:dynamic",
    "farm": "A",
    "rho": 0.610714286,
    "seeds": 10,
    "mean_ms": 22,
    "mean_ci_ms": null,
    "p50_ms": null,
    "p90_ms": null,
    "p90_ci_ms": null,
    "p99_ms": null,
    "refused": 15,
    "hops": 1.416,
    "events": 7,
    "events_per_s": 12000000
  }
]
`
	wantText(t, want, func(b *strings.Builder) error { return Table(someRows()[1:]).JSON(b) })
	wantText(t, "[]\n", func(b *strings.Builder) error { return Table([]Row{}).JSON(b) })
}

func TestPrint(t *testing.T) {
	s := &Study{Setting: &Setting{Name: "A", Farm: sim.FarmA()}, Seeds: 10}
	const head = `farm A: 48 servers with 96 cores, 2 LBs; 80000 requests a run, seeds 1 to 10
times in ms; ± is half the 95 % interval of the mean over seeds

`
	const plain = `     rho  policy         mean    ±    p50    p90    ±     p99     refused  hops  M events/s
     0.5  single        254.2  1.7  164.2  590.4  8.2  1321.5           0  1.00         9.9

  0.6107  hunt:dynamic   22.0    –      –      –    –       –  15 (1.5 %)  1.42        12.0
`
	wantText(t, head+plain, func(b *strings.Builder) error { return s.Print(b, someRows()) })
	rows := someRows()[1:]
	rows[0].Overload = true
	const marked = `      rho  policy        mean  ±  p50  p90  ±  p99     refused  hops  M events/s
  *0.6107  hunt:dynamic  22.0  –    –    –  –    –  15 (1.5 %)  1.42        12.0

* More than the farm can serve: queues grow as long as requests come, so these
  numbers depend on how many come, here 80000.
`
	wantText(t, head+marked, func(b *strings.Builder) error { return s.Print(b, rows) })
}

func wantText(t *testing.T, want string, write func(*strings.Builder) error) {
	t.Helper()
	var b strings.Builder
	if err := write(&b); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(b.String(), "\n")
	for i := range lines {
		lines[i] = strings.TrimRight(lines[i], " ")
	}
	if got := strings.Join(lines, "\n"); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// full is a disk without room.
type full struct{}

var errFull = errors.New("no space left on device")

func (full) Write([]byte) (int, error) { return 0, errFull }

func TestFullDiskIsAnError(t *testing.T) {
	s := &Study{Setting: &Setting{Name: "A", Farm: sim.FarmA()}, Seeds: 10}
	for name, err := range map[string]error{
		"csv": Table(someRows()).CSV(full{}), "json": Table(someRows()).JSON(full{}), "text": s.Print(full{}, someRows()),
	} {
		if !errors.Is(err, errFull) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
