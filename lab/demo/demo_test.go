package demo

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"proffer/lab/farmrun"
	"proffer/lab/tables"
	"proffer/lab/traffic"
)

// answered is a run of three requests, which the servers' second candidates answered.
func answered() *farmrun.Result {
	r := &farmrun.Result{Kinds: farmrun.Kinds{Servers: 4, Cores: 1, Workers: 1, Fast: 1, Speed: 2}, Loads: farmrun.Loads{Seconds: []float64{0}, Busy: []float64{1}, Fairness: []float64{1}}}
	for i := range 3 {
		r.Rows = append(r.Rows, traffic.Row{ID: i, Server: fmt.Sprintf("s%d", i+1), Outcome: traffic.OK, Hops: 2, Connected: time.Millisecond, Done: 2 * time.Millisecond})
	}
	return r
}

// TestSummaryOf: the shares of the first candidates and of the faster servers.
func TestSummaryOf(t *testing.T) {
	r := answered()
	if s := summaryOf(r); s.Fast != 0 || s.First != 0 {
		t.Errorf("%+v", s)
	}
	for i := range r.Rows {
		r.Rows[i].Server, r.Rows[i].Hops = "s4", 1
	}
	if s := summaryOf(r); s.Fast != 1 || s.First != 1 {
		t.Errorf("%+v", s)
	}
}

// TestRefusalsCount: RSTs to a SYN, and the SYNs that kernels dropped: either the clients' or
// the servers' count of them, whichever is larger.
func TestRefusalsCount(t *testing.T) {
	for _, c := range []struct {
		drops traffic.Drops
		want  int
	}{{traffic.Drops{}, 1}, {traffic.Drops{SYNRetransmits: 5}, 6}, {traffic.Drops{ListenDrops: 4}, 5}, {traffic.Drops{SYNRetransmits: 2, ListenDrops: 3}, 4}} {
		r := answered()
		r.Rows[0].Outcome = traffic.Refused
		r.Drops = c.drops
		if got := summaryOf(r).Refusals; got != c.want {
			t.Errorf("%+v and one RST: %d refusals, want %d", c.drops, got, c.want)
		}
	}
}

// TestReportLate: a late run has its row, its mark with the reason and its rows in a file, is in
// the pictures, and is compared with no other.
func TestReportLate(t *testing.T) {
	for _, late := range []int{0, 1} { // single, hunt
		r := &Report{experiment: Experiment{Kinds: farmrun.Kinds{Servers: 4, Cores: 1, Workers: 1, Speed: 2}, Requests: 30, Out: t.TempDir()}}
		for i, spelt := range []string{"single", "hunt:static:4"} {
			result := answered()
			var err error
			if result.Policy, err = farmrun.ParseCompared(spelt); err != nil {
				t.Fatal(err)
			}
			if i == late {
				result.Late = fmt.Errorf("%w: by a day", traffic.ErrLate)
			}
			r.add(result)
			r.keep(result)
		}
		var out strings.Builder
		if err := r.Print(&out); err != nil {
			t.Fatal(err)
		}
		name := []string{"single", "hunt:static:4"}[late]
		for _, want := range []string{name + " (late) ", name + " (late), 3 of 30 requests: " + traffic.ErrLate.Error() + ": by a day"} {
			if !strings.Contains(out.String(), want) {
				t.Errorf("%q is missing:\n%s", want, out.String())
			}
		}
		if got := strings.Count(out.String(), "–"); got != 2-late || r.Policies[late].VsSingle != 0 || r.Policies[late].Late == "" || r.Policies[1-late].Late != "" {
			t.Errorf("compared although late:\n%s\n%+v", out.String(), r.Policies)
		}
		paths, err := tables.Save(r.experiment.Out, r.Files()...)
		if err != nil || len(paths) != 9 {
			t.Errorf("%d files: %v, %v", len(paths), paths, err)
		}
		svg, err := os.ReadFile(filepath.Join(r.experiment.Out, "cdf.svg"))
		if err != nil || !strings.Contains(string(svg), name+" (late)") {
			t.Errorf("the picture does not name the late run: %v", err)
		}
	}
}

// TestReportEmpty: a row without an answer can be saved and written as JSON.
func TestReportEmpty(t *testing.T) {
	r := &Report{}
	result := answered()
	for i := range result.Rows {
		result.Rows[i].Outcome = traffic.TimedOut
	}
	r.add(result)
	if paths, err := tables.Save(t.TempDir(), r.Files()...); err != nil || len(paths) != 1 {
		t.Errorf("files %v, %v", paths, err)
	}
	if text, err := json.Marshal(r); err != nil || r.Policies[0].Timeouts != 3 {
		t.Errorf("%s, %v", text, err)
	}
}

// TestReportPrint: the table has the fast servers' share where there are fast ones, and the number of
// LBs.
func TestReportPrint(t *testing.T) {
	result := answered()
	for _, c := range []struct {
		lbs, fast  int
		have, lack string
	}{{0, 0, "workers, 1 LB, load", "fast serve"}, {2, 1, "2 LBs, load", "1 LB"}, {1, 1, "1st takes  fast serve  SYN-ACK ms", "LBs"}} {
		r := &Report{experiment: Experiment{LBs: c.lbs, Kinds: farmrun.Kinds{Servers: 4, Cores: 1, Workers: 1, Fast: c.fast, Speed: 2}}}
		r.add(result)
		var out strings.Builder
		if err := r.Print(&out); err != nil {
			t.Fatal(err)
		}
		table := strings.Split(strings.TrimSpace(out.String()), "\n")
		if !strings.Contains(out.String(), c.have) || strings.Contains(out.String(), c.lack) || len(table) != 4 {
			t.Errorf("%d LBs, %d fast servers: want %q and no %q:\n%s", c.lbs, c.fast, c.have, c.lack, out.String())
		} else if utf8.RuneCountInString(table[2]) != utf8.RuneCountInString(table[3]) {
			t.Errorf("the row is not as wide as its head:\n%s", out.String())
		}
	}
}
