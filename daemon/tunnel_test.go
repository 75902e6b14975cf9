package daemon

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"proffer/api"
	"proffer/dataplane"
	"proffer/topo"
)

// edgeFile is an edge LB's file with all keys.
func edgeFile(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("../config/testdata/edge.yaml")
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestEdgeReloadOfWhatIsFixed: an edge LB needs a restart for constants of its programs, and for its links,
// and for nothing else.
func TestEdgeReloadOfWhatIsFixed(t *testing.T) {
	path := filepath.Join(t.TempDir(), "edge.yaml")
	read := func(text string) *topo.EdgeLB {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		cfg, err := readEdge(t.Context(), path)
		if err != nil {
			t.Fatal(err)
		}
		return cfg
	}
	r := &edgeLB{path: path, started: read(edgeFile(t))}
	for _, c := range []struct{ old, new, key string }{
		{"name: gate", "name: other", "name"},
		{"gate.sock", "other.sock", "control"},
		{`flow_key: "00`, `flow_key: "ff`, "flow_key"},
		{"clients: eth0", "clients: eth9", "clients"},
		{"world: eth1", "world: eth9", "world"},
		{"entries: 1024", "entries: 2048", "flow_table"},
		{"idle: 90s", "idle: 91s", "flow_table"},
		{"recovery: all", "recovery: tcp", "recovery"},
	} {
		read(strings.Replace(edgeFile(t), c.old, c.new, 1))
		if _, err := r.reload(t.Context()); err == nil || err.Error() != c.key+" cannot change while the daemon runs: restart it" {
			t.Errorf("%s for %s: %v", c.new, c.old, err)
		}
	}
	for old, changed := range map[string]string{
		"balancer: wrr": "balancer: model", "203.0.113.1/32": "203.0.113.2/32", "weight: 3": "weight: 4", "cost: 700ns": "cost: 800ns",
		"10.2.0.0/16": "10.3.0.0/16", "link: eth3": "link: eth4", "start-node": "start-another",
	} {
		if err := sameEdge(r.started, read(strings.Replace(edgeFile(t), old, changed, 1))); err != nil {
			t.Errorf("%s for %s: %v", changed, old, err)
		}
	}
}

// TestDatapathReload: a node names the way to another file; a mistake in it comes first.
func TestDatapathReload(t *testing.T) {
	r := &datapath{path: "../config/testdata/nf.yaml"}
	if _, err := r.reload(t.Context()); err == nil || err.Error() != "a node takes its file at its start alone: drain it at the LBs and restart it" {
		t.Error(err)
	}
	r.path = filepath.Join(t.TempDir(), "node.yaml")
	if err := os.WriteFile(r.path, []byte("number: none\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := r.reload(t.Context()); err == nil || !strings.Contains(err.Error(), r.path+":1:") {
		t.Error(err)
	}
}

// ends is a role with these far ends, and their plane.
type ends struct {
	TunnelPlane
	all     []far
	refuses error
	hops    map[int]topo.MAC
	set     []string

	change   string
	gone     error
	problems []string
}

func (e *ends) fars() []far      { return e.all }
func (e *ends) routed() []Routed { return nil }
func (e *ends) reload(context.Context) (func() error, error) {
	return func() error { return nil }, e.refuses
}
func (e *ends) describe(*api.Status) error { return nil }

func (e *ends) Advice() []string                       { return nil }
func (e *ends) Counters() ([]dataplane.Counter, error) { return nil, nil }

func (e *ends) Interface(link string) string { return link + "-now" }
func (e *ends) Follow() (string, error)      { return e.change, e.gone }
func (e *ends) Problems() ([]string, error)  { return e.problems, nil }

func (e *ends) SetNextHop(far int, mac topo.MAC) error {
	e.hops[far] = mac
	e.set = append(e.set, fmt.Sprintf("%d %v", far, mac != topo.MAC{}))
	return nil
}

// TestTunnelNextHops: the plane has a next hop of each far end that the kernel has one for, and that is
// not down; it gets changes alone. A reload gives it all again, one that is refused, too.
func TestTunnelNextHops(t *testing.T) {
	m := newMachine(t, lbFile)
	near, other := netip.MustParseAddr("192.0.2.2"), netip.MustParseAddr("192.0.2.3")
	mac := topo.MAC{2}
	m.hops = topo.NextHops{netip.PrefixFrom(near, 32): mac}
	e := &ends{all: []far{{1, near, "eth2", false}, {2, other, "eth2", false}}, hops: map[int]topo.MAC{}}
	d := &tunnels{tunnelRole: e, name: "edge", plane: e, host: m.host(), hops: map[string]NextHops{}, known: map[int]topo.MAC{}, by: map[int]string{}}
	step := func(label string, want ...string) {
		t.Helper()
		e.set = nil
		if err := d.reach(true); err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(e.set, want) {
			t.Errorf("%s: set %v, want %v", label, e.set, want)
		}
	}
	step("at first", "1 true", "2 false")
	if list := d.unreached(); !slices.Equal(list, []string{"192.0.2.3 (on eth2)"}) {
		t.Errorf("unreached: %v", list)
	}
	m.waiting = topo.Waiting{netip.PrefixFrom(other, 32): {netip.MustParseAddr("192.0.2.1")}}
	m.hops[netip.PrefixFrom(other, 32)] = topo.MAC{}
	step("without a change")
	if list := d.unreached(); !slices.Equal(list, []string{"192.0.2.3 (on eth2 by gateway 192.0.2.1)"}) {
		t.Errorf("unreached by a gateway: %v", list)
	}
	m.mu.Lock()
	m.hops = topo.NextHops{netip.PrefixFrom(near, 32): mac, netip.PrefixFrom(other, 32): {4}}
	m.mu.Unlock()
	step("a neighbour is found", "2 true")
	e.all[0].down = true
	step("a node is down", "1 false")
	e.all[0].down = false
	step("it answers again", "1 true")
	e.all = append(e.all[:1:1], far{3, other, "eth3", false})
	step("one is gone, another on its own link", "3 true")
	if want := map[int]topo.MAC{1: mac, 3: {4}}; !maps.Equal(d.known, want) || len(d.hops) != 2 {
		t.Errorf("it knows %v over %d links, want %v over 2", d.known, len(d.hops), want)
	}
	e.all = e.all[:1]
	step("its link is of no use")
	if len(d.hops) != 1 || m.happened()[len(m.happened())-1] != "unwatch" {
		t.Errorf("%d links are watched: %v", len(d.hops), m.happened())
	}
	e.refuses = errors.New("a mistake")
	d.reloadOnce(t.Context())
	step("after a file with a mistake", "1 true")
	e.refuses, e.set = nil, nil
	d.reloadOnce(t.Context())
	if !slices.Equal(e.set, []string{"1 true"}) || d.done != 1 || d.refused != 1 {
		t.Errorf("a reload set %v; %d reloads, %d refused", e.set, d.done, d.refused)
	}
	m.logs(`msg="configuration not reloaded, the old one stays" error="a mistake"`)
	m.logs(`msg="configuration reloaded"`)
}

// TestTunnelFollows: after a change of a link the plane gets all next hops again, by links as they are named now; one
// that cannot be watched has none. A problem is logged and in the status. A link that is gone ends the daemon.
func TestTunnelFollows(t *testing.T) {
	m := newMachine(t, lbFile)
	near := netip.MustParseAddr("192.0.2.2")
	m.hops = topo.NextHops{netip.PrefixFrom(near, 32): {2}}
	e := &ends{all: []far{{1, near, "eth2", false}}, hops: map[int]topo.MAC{}}
	d := &tunnels{tunnelRole: e, name: "edge", plane: e, host: m.host(), hops: map[string]NextHops{}, known: map[int]topo.MAC{}, by: map[int]string{}}
	step := func(label string, failed bool, want ...string) {
		t.Helper()
		e.set = nil
		if err := d.follow(); (err != nil) != failed {
			t.Errorf("%s: %v", label, err)
		}
		if !slices.Equal(e.set, want) {
			t.Errorf("%s: set %v, want %v", label, e.set, want)
		}
	}
	if err := d.reach(true); err != nil {
		t.Fatal(err)
	}
	step("without a change", false)
	e.change, e.problems = "eth2: MTU 1500 is now 1570", []string{"detached"}
	step("a change", false, "1 true")
	m.logs(`msg="a change is followed" change="eth2: MTU 1500 is now 1570"`)
	m.logs(`msg="packets pass the programs by" problem=detached`)
	if got := d.problems.Now(); !slices.Equal(got, e.problems) {
		t.Errorf("problems %q", got)
	}
	m.fail("watch eth2-now")
	step("a link that cannot be watched", true, "1 false")
	e.gone = fmt.Errorf("%w: eth1", dataplane.ErrLinkGone)
	ended := make(chan error)
	go func() { ended <- d.each(t.Context(), followEvery, d.follow) }()
	m.clock.tick(t, followEvery)
	if err := <-ended; !errors.Is(err, dataplane.ErrLinkGone) {
		t.Errorf("it ended with %v", err)
	}
}

// TestUpkeepLogsOnce: an error that stays is logged once, and again when it comes again.
func TestUpkeepLogsOnce(t *testing.T) {
	m := newMachine(t, lbFile)
	errs := []error{errors.New("one"), errors.New("one"), errors.New("two"), nil, errors.New("two")}
	d := &tunnels{host: m.host()}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	turn := 0
	go func() {
		ended <- d.each(ctx, sweepEvery, func() error {
			err := errs[turn]
			if turn++; turn == len(errs) {
				cancel()
			}
			return err
		})
	}()
	for range errs {
		m.clock.tick(t, sweepEvery)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
	for _, want := range []string{"one", "two", "two"} {
		if line := <-m.lines; !strings.Contains(line, "error="+want) {
			t.Errorf("it logged %q, want %s", line, want)
		}
	}
}
