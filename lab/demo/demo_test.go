package demo

import (
	"encoding/json"
	"errors"
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
	"proffer/lab/traffic/responder"
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
		drops responder.Drops
		want  int
	}{{responder.Drops{}, 1}, {responder.Drops{SYNRetransmits: 5}, 6}, {responder.Drops{ListenDrops: 4}, 5}, {responder.Drops{SYNRetransmits: 2, ListenDrops: 3}, 4}} {
		r := answered()
		r.Rows[0].Outcome = traffic.Refused
		r.Drops = c.drops
		if got := summaryOf(r).Refusals; got != c.want {
			t.Errorf("%+v and one RST: %d refusals, want %d", c.drops, got, c.want)
		}
	}
}

// TestMarks: a marked row is printed with its reason, is in the pictures and their notes, has its rows in a
// file, and is compared with no other if it is late or failed.
func TestMarks(t *testing.T) {
	for _, c := range []struct {
		name, reason string
		spoil        func(*farmrun.Result)
		dashes       int // of the ratios, where single and where hunt is spoilt
		hasRows      bool
	}{
		{"late", traffic.ErrLate.Error() + ": by a day", func(r *farmrun.Result) { r.Late = fmt.Errorf("%w: by a day", traffic.ErrLate) }, 2, true},
		{"failed", "no daemon", func(r *farmrun.Result) { r.Failed, r.Rows = errors.New("no daemon"), nil }, 2, false},
		{"failed", "none of 60 requests was answered", func(r *farmrun.Result) {
			for i := range r.Rows {
				r.Rows[i].Outcome = traffic.TimedOut
			}
		}, 2, true},
		{"uncertain", "too few requests", func(r *farmrun.Result) { r.Rows = r.Rows[:1] }, 0, true},
		{"uncertain", "times as long as an exact replay", func(r *farmrun.Result) {
			for i := range r.Rows {
				r.Rows[i].Service /= 2
			}
		}, 0, true},
	} {
		for _, spoilt := range []int{0, 1} { // single, hunt
			r := &Report{experiment: Experiment{Kinds: farmrun.Kinds{Servers: 4, Cores: 1, Workers: 1, Speed: 2}, Requests: 60, Out: t.TempDir()}}
			names := []string{"single", "hunt:static:4"}
			for i, spelt := range names {
				result := many(t, spelt)
				if i == spoilt {
					c.spoil(result)
				}
				r.add(result)
				r.keep(result)
			}
			wantMarked(t, r, spoilt, c.name, c.reason)
			var out strings.Builder
			if err := r.Print(&out); err != nil {
				t.Fatal(err)
			}
			want := c.dashes
			if spoilt == 1 && want > 0 {
				want = 1 // single's own stays
			}
			if got := strings.Count(out.String(), "–"); got != want || r.nothing() != nil {
				t.Errorf("%s: %d are compared with none, want %d; %v:\n%s", c.name, got, want, r.nothing(), out.String())
			}
			if _, err := os.Stat(filepath.Join(r.experiment.Out, "rows-"+strings.ReplaceAll(names[spoilt], ":", "-")+".csv")); (err == nil) != c.hasRows {
				t.Errorf("%s: rows: %v", c.name, err)
			}
		}
	}
}

// many is a run of 60 requests that are alike, and served one at a time by four servers.
func many(t *testing.T, spelt string) *farmrun.Result {
	t.Helper()
	r := answered()
	r.Rows = nil
	for i := range 60 {
		at := time.Duration(i) * time.Second
		r.Rows = append(r.Rows, traffic.Row{ID: i, Server: fmt.Sprintf("s%d", i%3+1), Outcome: traffic.OK, Hops: 1,
			Intended: at, Started: at, Connected: at + time.Millisecond, Done: at + 100*time.Millisecond + time.Duration(i%2)*time.Millisecond, Service: 100 * time.Millisecond})
	}
	var err error
	if r.Policy, err = farmrun.ParseCompared(spelt); err != nil {
		t.Fatal(err)
	}
	return r
}

// wantMarked wants a mark and its reason at one row of two, and in what is drawn.
func wantMarked(t *testing.T, r *Report, spoilt int, mark, reason string) {
	t.Helper()
	p, other := r.Policies[spoilt], r.Policies[1-spoilt]
	if p.Mark != mark || !strings.Contains(p.Reason, reason) || other.Mark != "" {
		t.Errorf("want %s: %s:\n%+v\n%+v", mark, reason, p, other)
	}
	if _, err := tables.Save(r.experiment.Out, r.Files()...); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"cdf.svg", "load.svg"} {
		svg, err := os.ReadFile(filepath.Join(r.experiment.Out, name))
		if err != nil || !strings.Contains(string(svg), p.Policy+" ("+mark+"), ") {
			t.Errorf("%s does not name the row that is %s: %v", name, mark, err)
		}
	}
	var out strings.Builder
	if err := r.Print(&out); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{p.Policy + " (" + mark + ") ", p.Policy + " (" + mark + "), ", reason} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is missing:\n%s", want, out.String())
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
