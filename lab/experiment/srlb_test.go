package experiment

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"proffer/lab/testbed"
	"proffer/lab/traffic"
	"proffer/policy"
	"proffer/topo"
)

// concluded is a run of three requests, of which each was answered by its flow's second
// candidate.
func concluded(t *testing.T) (*Result, *Farm, map[string][]string) {
	t.Helper()
	farm := &Farm{Bed: &testbed.Bed{LBs: []*testbed.Node{{Name: "lb1"}}}}
	farm.Service = topo.Service{
		Name: "web", VIP: topo.VIP{Addr: netip.MustParseAddr("2001:db8:f::1"), Port: 80},
		Dispatch: topo.Hunt, Choices: 2, Buckets: 251,
	}
	for i, name := range []string{"s1", "s2", "s3", "s4"} {
		farm.Service.Servers = append(farm.Service.Servers, topo.Server{Name: name, Locator: benchServer(i), Weight: 1})
	}
	r, books := &Result{kinds: Kinds{Servers: 4, Cores: 1, Workers: 1, Fast: 1, Speed: 2}, Loads: Loads{Seconds: []float64{0}, Busy: []float64{1}, Fairness: []float64{1}}}, map[string][]string{}
	for i, id := range []string{"0", "1", "2"} {
		from := netip.AddrPortFrom(netip.MustParseAddr("2001:db8:c::1"), uint16(1024+i))
		server := farm.Service.Servers[candidates(t, farm, from)[1]].Name
		r.Rows = append(r.Rows, traffic.Row{ID: i, From: from, Server: server, Outcome: traffic.OK, Connected: time.Millisecond, Done: 2 * time.Millisecond})
		books[server] = append(books[server], id)
	}
	return r, farm, books
}

func candidates(t *testing.T, farm *Farm, from netip.AddrPort) []uint16 {
	t.Helper()
	list, err := farm.Candidates(policy.Flow{Client: from, VIP: netip.AddrPortFrom(farm.Service.VIP.Addr, farm.Service.VIP.Port)})
	if err != nil || len(list) != 2 {
		t.Fatalf("candidates %v, %v", list, err)
	}
	return list
}

// TestConclude: a run in which a request was served twice or by another server than answered
// it, or which was answered by no candidate, is no result.
func TestConclude(t *testing.T) {
	for _, c := range []struct {
		name  string
		spoil func(*Result, *Farm, map[string][]string)
		what  string
	}{
		{"good", func(*Result, *Farm, map[string][]string) {}, ""},
		{"twice by one server", func(r *Result, _ *Farm, books map[string][]string) {
			books[r.Rows[1].Server] = append(books[r.Rows[1].Server], "1")
		}, "request 1 was served twice"},
		{"twice by two servers", func(r *Result, _ *Farm, books map[string][]string) {
			books["s9"] = append(books["s9"], "2")
		}, "request 2 was served twice"},
		{"by none", func(_ *Result, _ *Farm, books map[string][]string) { clear(books) }, "and served by \"\""},
		{"by another", func(r *Result, _ *Farm, books map[string][]string) {
			clear(books)
			books["s9"] = []string{"0", "1", "2"}
		}, "and served by \"s9\""},
		{"by no candidate", func(r *Result, farm *Farm, books map[string][]string) {
			list := candidates(t, farm, r.Rows[0].From)
			for i := range uint16(4) {
				if !slices.Contains(list, i) {
					r.Rows[0].Server = farm.Service.Servers[i].Name
				}
			}
			clear(books)
			for i, row := range r.Rows {
				books[row.Server] = append(books[row.Server], string(rune('0'+i)))
			}
		}, "was not among its candidates"},
	} {
		r, farm, books := concluded(t)
		c.spoil(r, farm, books)
		got, err := conclude(r, farm, books)
		holds(t, c.name, err, c.what)
		if (got != nil) != (c.what == "") {
			t.Errorf("%s: result %v", c.name, got)
		}
		if got != nil && (got.Rows[2].Hops != 2 || got.Rows[2].LB != "lb1" || got.summary().First != 0) {
			t.Errorf("%s: %+v", c.name, got.Rows[2])
		}
	}
}

// TestRefusalsCount: RSTs to a SYN, and the SYNs that kernels dropped: either the clients' or
// the servers' count of them, whichever is larger.
func TestRefusalsCount(t *testing.T) {
	for _, c := range []struct {
		drops dropped
		want  int
	}{{dropped{}, 1}, {dropped{synRetransmits: 5}, 6}, {dropped{listenDrops: 4}, 5}, {dropped{2, 3}, 4}} {
		r, _, _ := concluded(t)
		r.Rows[0].Outcome = traffic.Refused
		r.drops = c.drops
		if got := r.summary().Refusals; got != c.want {
			t.Errorf("%+v and one RST: %d refusals, want %d", c.drops, got, c.want)
		}
	}
	if got := (dropped{7, 9}).since(dropped{3, 4}); got != (dropped{4, 5}) {
		t.Errorf("since: %+v", got)
	}
}

// TestReportLate: a late run has its row, its mark with the reason and its rows in a file, is in
// the pictures, and is compared with no other.
func TestReportLate(t *testing.T) {
	for _, late := range []int{0, 1} { // single, hunt
		r := &Report{experiment: SRLB{Kinds: Kinds{Servers: 4, Cores: 1, Workers: 1, Speed: 2}, Requests: 30, Out: t.TempDir()}}
		for i, spelt := range []string{"single", "hunt:static:4"} {
			result, _, _ := concluded(t)
			var err error
			if result.Policy, err = ParseCompared(spelt); err != nil {
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
		paths, err := r.Save(r.experiment.Out)
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
	result, _, _ := concluded(t)
	for i := range result.Rows {
		result.Rows[i].Outcome = traffic.TimedOut
	}
	r.add(result)
	if paths, err := r.Save(t.TempDir()); err != nil || len(paths) != 1 {
		t.Errorf("files %v, %v", paths, err)
	}
	if text, err := json.Marshal(r); err != nil || r.Policies[0].Timeouts != 3 {
		t.Errorf("%s, %v", text, err)
	}
}

// TestReportPrint: the table has the fast servers' share where there are fast ones, and the number of
// LBs.
func TestReportPrint(t *testing.T) {
	result, _, _ := concluded(t)
	for _, c := range []struct {
		lbs, fast  int
		have, lack string
	}{{0, 0, "workers, 1 LB, load", "fast serve"}, {2, 1, "2 LBs, load", "1 LB"}, {1, 1, "1st takes  fast serve  SYN-ACK ms", "LBs"}} {
		r := &Report{experiment: SRLB{LBs: c.lbs, Kinds: Kinds{Servers: 4, Cores: 1, Workers: 1, Fast: c.fast, Speed: 2}}}
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
