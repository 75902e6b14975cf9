package storms

import (
	"fmt"
	"slices"
	"testing"

	"proffer/lab/testbed"
	"proffer/topo"
)

func nodes(n int) (all []*testbed.Node) {
	for i := range n {
		all = append(all, &testbed.Node{Name: fmt.Sprintf("s%d", i+1), Locator: testbed.ServerLocator(i + 1)})
	}
	return all
}

// configured is an LB's configuration of the pool.
func configured(p *pool) topo.Service {
	lb := &topo.LB{Services: []topo.Service{{}}}
	p.configure(lb)
	return lb.Services[0]
}

func names(servers []topo.Server) (all []string) {
	for _, s := range servers {
		all = append(all, s.Name)
	}
	return all
}

func TestPoolRemembersAllPoolsBefore(t *testing.T) {
	p := newPool(nodes(12), 9, true, 5)
	var before []topo.Service
	for range 3 {
		before = append(before, configured(p))
		gone, err := p.replace()
		if err != nil {
			t.Fatal(err)
		}
		now := configured(p)
		was := before[len(before)-1]
		if len(now.Servers) != 9 || slices.Contains(names(now.Servers), gone.Name) || !slices.Contains(names(was.Servers), gone.Name) {
			t.Errorf("%s was replaced: %v became %v", gone.Name, names(was.Servers), names(now.Servers))
		}
		if !slices.IsSortedFunc(now.Servers, func(a, b topo.Server) int { return a.Locator.Addr().Compare(b.Locator.Addr()) }) {
			t.Errorf("not in order of locators: %v", names(now.Servers))
		}
		if now.Version != was.Version+1 || len(now.History) != len(before) {
			t.Errorf("version %d with %d earlier pools", now.Version, len(now.History))
		}
		for i, h := range now.History { // the newest first
			want := before[len(before)-1-i]
			if h.Version != want.Version || !slices.Equal(names(h.Servers), names(want.Servers)) {
				t.Errorf("history %d is version %d of %v, want version %d of %v", i, h.Version, names(h.Servers), want.Version, names(want.Servers))
			}
		}
	}
	if _, err := p.replace(); err == nil {
		t.Error("a server was replaced by none")
	}
}

func TestPoolWithoutHorizonForgets(t *testing.T) {
	p := newPool(nodes(4), 3, false, 5)
	if _, err := p.replace(); err != nil {
		t.Fatal(err)
	}
	if s := configured(p); len(s.History) != 0 || s.Version != 2 {
		t.Errorf("version %d, %d earlier pools", s.Version, len(s.History))
	}
}

// TestPoolIsItsSeeds: all methods lose the same servers.
func TestPoolIsItsSeeds(t *testing.T) {
	gone := func(seed uint64, horizon bool) (all []string) {
		p := newPool(nodes(22), 12, horizon, seed)
		for range 10 {
			n, err := p.replace()
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, n.Name)
		}
		return all
	}
	if a, b := gone(1, true), gone(1, false); !slices.Equal(a, b) {
		t.Errorf("one seed took %v and %v", a, b)
	}
	if a, b := gone(1, true), gone(2, true); slices.Equal(a, b) {
		t.Errorf("two seeds took %v", a)
	}
}
