package control

import (
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"proffer/topo"
)

// several is a plane on several links.
type several struct {
	*bench
	devices map[string]int           // the number of each link; 0: it is gone
	over    map[string]*bench        // the next hops over each
	reached map[string]topo.NextHops // that the plane has
	watched []string                 // each begin and end
}

func (s *several) Link(name string) *net.Interface {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.devices[name] == 0 {
		return nil
	}
	return &net.Interface{Index: s.devices[name], Name: name + "-now"}
}

func (s *several) Reach(link string, hops topo.NextHops) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reached[link] = hops
	return nil
}

// watchedLink are the next hops over a link.
type watchedLink struct {
	*bench
	of   *several
	name string
}

func (w watchedLink) Close() { w.of.note("end " + w.name) }

func (s *several) note(event string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.watched = append(s.watched, event)
}

func (s *several) watch(name string) (NextHops, error) {
	s.note("watch " + name)
	if err := s.fails["watch "+name]; err != nil {
		return nil, err
	}
	return watchedLink{s.over[strings.TrimSuffix(name, "-now")], s, name}, nil
}

// TestLinks: each link of a plane has next hops of its own, which the plane gets as they change. A link that is gone
// has none, and has some again when it is another device; one that the configuration leaves is not watched; targets
// that are new are resolved.
func TestLinks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, far, third := netip.MustParseAddr("192.0.2.2"), netip.MustParseAddr("192.0.2.6"), netip.MustParseAddr("192.0.2.3")
		s := &several{devices: map[string]int{"eth2": 2, "eth3": 3}, over: map[string]*bench{}, reached: map[string]topo.NextHops{}}
		s.bench, _ = newBench(t)
		for name := range s.devices {
			var beside *Controller
			s.over[name], beside = newBench(t)
			beside.Close() // it would take the changes
		}
		s.over["eth2"].hops[netip.PrefixFrom(near, 32)] = topo.MAC{2}
		c := New(s, s.watch, Ways{"eth2": {near}, "eth3": {far}}, bubble{}, slog.New(slog.NewTextHandler(&locked{b: s.bench}, nil)))
		defer c.Close()
		if err := c.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		defer running(t, s.bench, c)()
		step := func(label string, lacking []string, watched ...string) {
			t.Helper()
			time.Sleep(sweepEvery + time.Millisecond)
			synctest.Wait()
			if got := c.Lacking(); !slices.Equal(got, lacking) {
				t.Errorf("%s: no next hop to %q, want %q", label, got, lacking)
			}
			s.mu.Lock()
			defer s.mu.Unlock()
			if !slices.Equal(s.watched, watched) {
				t.Errorf("%s: %q, want %q", label, s.watched, watched)
			}
			s.watched = nil
		}
		mac := func(link string, of netip.Addr) topo.MAC {
			s.mu.Lock()
			defer s.mu.Unlock()
			mac, _ := s.reached[link].Lookup(of)
			return mac
		}
		step("at first", []string{"192.0.2.6 (on eth3)"}, "watch eth2-now", "watch eth3-now")
		o := s.over["eth3"]
		o.with(func() { o.hops[netip.PrefixFrom(far, 32)] = topo.MAC{3} })
		o.changes <- struct{}{}
		step("a neighbour is found", nil)
		if mac("eth2", near) != (topo.MAC{2}) || mac("eth3", far) != (topo.MAC{3}) {
			t.Errorf("the plane has %v", s.reached)
		}
		c.mu.Lock() // as a long look at next hops does
		if got := c.Lacking(); len(got) > 0 {
			t.Errorf("during a look there is no next hop to %q", got)
		}
		c.mu.Unlock()
		s.with(func() { s.devices["eth3"] = 0 })
		step("a link is gone", []string{"192.0.2.6 (on eth3, which is gone)"}, "end eth3-now")
		if mac("eth3", far) != (topo.MAC{}) {
			t.Errorf("over a link that is gone the plane has %v", s.reached["eth3"])
		}
		s.with(func() { s.devices["eth3"], s.fails["watch eth3-now"] = 7, errors.New("no watch") })
		step("it cannot be watched", []string{"192.0.2.6 (on eth3, which is gone)"}, "watch eth3-now")
		time.Sleep(3 * sweepEvery)
		synctest.Wait()
		if n := strings.Count(s.logged(), `error="no watch"`); n != 1 {
			t.Errorf("an error that stays is logged %d times:\n%s", n, s.logged())
		}
		s.with(func() { s.fails["watch eth3-now"], s.watched = nil, nil })
		step("it is another device", nil, "watch eth3-now")
		if mac("eth3", far) != (topo.MAC{3}) {
			t.Errorf("over the new device the plane has %v", s.reached["eth3"])
		}
		c.SetWays(Ways{"eth2": {near, third}})
		step("it is left, and another is near", []string{"192.0.2.3 (on eth2)"}, "end eth3-now")
		if o := s.over["eth2"]; !slices.Equal(o.targets, []netip.Addr{near, third}) {
			t.Errorf("resolved %v", o.targets)
		}
	})
}
