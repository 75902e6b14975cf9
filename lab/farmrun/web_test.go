package farmrun

import (
	"net/netip"
	"slices"
	"testing"
	"time"

	"proffer/lab/farmrun/farmtest"
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
		farm.Service.Servers = append(farm.Service.Servers, topo.Server{Name: name, Locator: testbed.ServerLocator(i + 1), Weight: 1})
	}
	r, books := &Result{Kinds: Kinds{Servers: 4, Cores: 1, Workers: 1, Fast: 1, Speed: 2}, Loads: Loads{Seconds: []float64{0}, Busy: []float64{1}, Fairness: []float64{1}}}, map[string][]string{}
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
		farmtest.Holds(t, c.name, err, c.what)
		if (got != nil) != (c.what == "") {
			t.Errorf("%s: result %v", c.name, got)
		}
		if got != nil && (got.Rows[2].Hops != 2 || got.Rows[2].LB != "lb1") {
			t.Errorf("%s: %+v", c.name, got.Rows[2])
		}
	}
}
