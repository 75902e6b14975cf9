package daemon

import (
	"errors"
	"net/netip"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"proffer/api"
	"proffer/dataplane"
	"proffer/topo"
)

const lbFile = `node: {locator: 5f00:0:1:1::/64, interface: eth9, domain: any}
signal_keys: none
control: %s
state: STATE
candidate_key: 000102030405060708090a0b0c0d0e0f
services:
  - name: web
    vip: 2001:db8:f::1
    port: 80
    dispatch: hunt
    servers: [{name: s1, locator: 5f00:0:2:1::/64}, {name: s2, locator: 5f00:0:2:2::/64}]
`

const agentFile = `node: {name: s1, locator: 5f00:0:2:1::/64, interface: eth9, domain: any}
signal_keys: none
control: %s
services:
  - {name: web, vip: 2001:db8:f::1, port: 80, acceptance: static:4}
  - {name: api, vip: 2001:db8:f::2, port: 80, acceptance: static:4, load: page, page: /run/load}
`

// daemons are all roles, each with a configuration.
var daemons = []struct {
	run  entry
	file string
}{{LB, lbFile}, {Agent, agentFile}, {Edge, edgeText}, {NF, datapathText}}

// TestOrder: the socket is taken before the link is watched, next hops are there
// before the first packet, and the plane is closed, not detached, when all else has ended.
func TestOrder(t *testing.T) {
	m := newMachine(t, lbFile)
	p := m.start(LB)
	if line := m.logs("msg=ready"); !strings.Contains(line, "role=lb node=lb interface=wan0 xdp=native adopted=true control="+m.socket+" servers=2 next_hops_known=1 flow_table_mib=20") {
		t.Errorf("the log has %s", line)
	}
	p.end()
	m.wantEvents("preflight", "load", "watch wan0 (socket)", "refresh (socket)", "next hops (socket)", "attach (socket)", "unwatch", "close")
	m.logs("the programs go on, and the next daemon takes them over: `proffer detach` removes them\" role=lb")
}

// common are the events that the daemons of all roles have, with one name of the link.
func (m *machine) common() (events []string) {
	for _, e := range m.happened() {
		switch event, _, _ := strings.Cut(e, " ("); event {
		case "measure", "count run time", "stop counting", "read rules", "open /run/load":
		default:
			events = append(events, strings.Replace(e, "l-now", "wan0", 1))
		}
	}
	return events
}

// TestDetachesAtEnd: the plane is detached before it is closed where that is asked for, where
// nothing is pinned, so that no other daemon would find it, and where the link is gone.
func TestDetachesAtEnd(t *testing.T) {
	for name, set := range map[string]func(*machine){
		"asked for":    func(m *machine) { m.detach = true },
		"not pinned":   func(m *machine) { m.unpinned = "no bpffs" },
		"link deleted": func(m *machine) { m.fails["follow"] = dataplane.ErrLinkGone },
	} {
		for _, d := range daemons {
			m := newMachine(t, d.file)
			set(m)
			p := m.running(d.run)
			if name == "link deleted" {
				m.clock.tick(t, time.Second)
			} else {
				p.stop()
			}
			if err := p.wait(); (err != nil) != (name == "link deleted") {
				t.Errorf("%s: %v", name, err)
			}
			if events := m.common(); !slices.Equal(events[len(events)-2:], []string{"detach", "close"}) {
				t.Errorf("%s: it ended with %q", name, events)
			}
			m.logs("msg=detached")
		}
	}
}

// TestWarnings: the warnings that an operator should see.
func TestWarnings(t *testing.T) {
	m := newMachine(t, lbFile)
	m.unpinned, m.advised = "no bpffs", []string{"XDP runs in the stack: the driver has none"}
	p := m.start(LB)
	m.logs(`msg="flows will not outlive this process" reason="no bpffs"`)
	m.logs("signals are not authenticated: `proffer help keys`")
	m.logs(`level=WARN msg="the link costs speed or packets" advice="XDP runs in the stack: the driver has none"`)
	if got := m.status().Advice; !slices.Equal(got, m.advised) {
		t.Errorf("status has the advice %q", got)
	}
	p.end()
}

// TestWarnsOfNoWork: the load measure that an agent has instead of work.
func TestWarnsOfNoWork(t *testing.T) {
	m := newMachine(t, agentFile)
	m.fails["count work"] = errors.New("no tracepoints")
	p := m.start(Agent)
	m.logs(`level=WARN msg="the load measure work cannot be counted here; busy is used instead" reason="no tracepoints"`)
	p.end()
}

// TestStartFails: the error names every failure, and nothing stays.
func TestStartFails(t *testing.T) {
	loaded := []string{"preflight", "load"}
	watched := append(slices.Clone(loaded), "watch wan0 (socket)")
	known := append(slices.Clone(watched), "refresh (socket)", "next hops (socket)")
	for event, want := range map[string][]string{
		"preflight":   {"preflight"},
		"load":        loaded,
		"watch wan0":  append(slices.Clone(watched), "close"),
		"next hops":   append(slices.Clone(known), "unwatch (socket)", "close"),
		"attach":      append(slices.Clone(known), "attach (socket)", "unwatch (socket)", "close"),
		"/no/folder/": append(slices.Clone(loaded), "close"),
	} {
		for _, d := range daemons {
			m := newMachine(t, strings.Replace(d.file, "load: page, page: /run/load", "load: busy", 1))
			broken := m.fail(event)
			m.fails["watch l-now"] = m.fails["watch wan0"]
			if event == "/no/folder/" {
				m.change(m.socket, "/proc/self/new/node.sock")
				broken = os.ErrNotExist
			}
			if err := m.start(d.run).wait(); !errors.Is(err, broken) {
				t.Errorf("%s broken: %v", event, err)
			}
			if got := m.common(); !slices.Equal(got, want) {
				t.Errorf("%s broken: events\n%q, want\n%q", event, got, want)
			}
			if _, err := os.Lstat(m.socket); !os.IsNotExist(err) {
				t.Errorf("%s broken: the socket is left: %v", event, err)
			}
		}
	}
}

// TestSocketIsTaken: the plane of a second daemon is never attached, and the
// first one answers on.
func TestSocketIsTaken(t *testing.T) {
	first := newMachine(t, lbFile)
	p := first.running(LB)
	second := newMachine(t, lbFile)
	second.change(second.socket, first.socket)
	if err := second.start(LB).exits(); err == nil || !strings.Contains(err.Error(), "another daemon answers there") {
		t.Errorf("the second daemon: %v", err)
	}
	second.wantEvents("preflight", "load", "close")
	if s := first.status(); s.Role != "lb" {
		t.Errorf("the first answers %+v", s)
	}
	p.end()
}

// TestInterruptedStart: a daemon that is to end while it waits for neighbours is
// not attached, and that is no failure.
func TestInterruptedStart(t *testing.T) {
	m := newMachine(t, lbFile)
	m.hops = topo.NextHops{}
	p := m.start(LB)
	m.awaits("next hops (socket)")
	p.end()
	m.wantEvents("preflight", "load", "watch wan0 (socket)", "refresh (socket)", "next hops (socket)", "unwatch (socket)", "close")
}

// awaits waits for an event.
func (m *machine) awaits(event string) {
	m.t.Helper()
	for late := time.Now().Add(patience); !slices.Contains(m.happened(), event); time.Sleep(time.Millisecond) {
		if time.Now().After(late) {
			m.t.Fatalf("%q does not happen within %v; events: %q", event, patience, m.happened())
		}
	}
}

// TestSilentNeighbours: after a second of the daemon's clock it starts without
// their next hops.
func TestSilentNeighbours(t *testing.T) {
	m := newMachine(t, lbFile)
	m.hops = topo.NextHops{}
	p := m.start(LB)
	m.awaits("next hops (socket)")
	m.clock.tick(t, time.Second)
	m.logs("some next hops do not answer yet")
	m.logs("msg=ready")
	p.end()
}

// TestUpkeep: sweeps and refreshes come by the daemon's clock and by nothing else,
// and addresses that packets lacked are resolved.
func TestUpkeep(t *testing.T) {
	m := newMachine(t, lbFile)
	p := m.running(LB)
	before := len(m.happened())
	for range 3 {
		m.clock.tick(t, time.Second)
	}
	m.clock.tick(t, 15*time.Second)
	m.clock.tick(t, time.Second) // the refresh has ended
	if events := m.happened(); !slices.Equal(events[before:], []string{"refresh (socket)", "next hops (socket)"}) {
		t.Errorf("upkeep did %q", events[before:])
	}
	select {
	case m.lost <- netip.MustParseAddr("5f00:0:2:2::"):
	case <-time.After(patience):
		t.Fatal("no part of the daemon listens for addresses without next hop")
	}
	m.awaits("resolve 5f00:0:2:2:: (socket)")
	if s := m.status(); s.Flows != 400 {
		t.Errorf("%d flows after four sweeps", s.Flows)
	}
	p.end()
}

func TestStatus(t *testing.T) {
	m := newMachine(t, lbFile)
	p := m.running(LB)
	s := m.status()
	if got, want := strings.Join(s.NoNextHop, "\n"), "10.0.0.9 (server silent is no neighbour on this link, which delivery: l2 needs)"; !strings.Contains(got, want) {
		t.Errorf("no next hop to %q, want %q", got, want)
	}
	if s.Role != "lb" || s.Node != "lb" || s.Locator != "5f00:0:1:1::/64" || s.Interface != "wan0" || s.XDP != "native" || s.PID != os.Getpid() || !s.Adopted || s.Counters["steered"] != 7 {
		t.Errorf("the LB answers %+v", s)
	}
	one, two := uint32(1), uint32(2)
	if want := []api.ServiceStatus{{Name: "web", VIP: "[2001:db8:f::1]:80", Mode: "hunt, choices 2, 2 servers", Servers: []api.ServerStatus{
		{Name: "s1", State: "unknown", Weight: 1, Connections: &one},
		{Name: "s2", State: "unknown", Weight: 1, Connections: &two},
	}}}; !reflect.DeepEqual(s.Services, want) {
		t.Errorf("services %+v, want %+v", s.Services, want)
	}
	m.fail("counters")
	if s, err := api.Ask(t.Context(), m.socket); err == nil || !strings.Contains(err.Error(), "counters is broken") {
		t.Errorf("without counters the LB answers %+v, %v", s, err)
	}
	p.end()
}

// TestDetachFails: a daemon that leaves something on its link ends with an error.
func TestDetachFails(t *testing.T) {
	m := newMachine(t, lbFile)
	p := m.running(LB)
	want := m.fail("close")
	p.stop()
	if err := p.wait(); !errors.Is(err, want) || !strings.HasPrefix(err.Error(), "detach: ") {
		t.Errorf("it ended with: %v", err)
	}
}

// TestLinkGone: if its link is deleted, a daemon ends with an error, so that its supervisor
// starts it again.
func TestLinkGone(t *testing.T) {
	m := newMachine(t, lbFile)
	p := m.running(LB)
	m.mu.Lock()
	m.fails["follow"] = dataplane.ErrLinkGone
	m.mu.Unlock()
	m.clock.tick(t, time.Second)
	if err := p.wait(); !errors.Is(err, dataplane.ErrLinkGone) {
		t.Errorf("it ended with %v", err)
	}
}

// TestForgotten: the flows that a start loses are logged.
func TestForgotten(t *testing.T) {
	m := newMachine(t, lbFile)
	m.forgotten = "7 flows: the entries are of layout-1"
	p := m.start(LB)
	m.logs(`lost="7 flows: the entries are of layout-1"`)
	p.end()
}

// TestDrain: a daemon that is to drain goes on until its table of flows is empty, its time is
// over or another signal comes; an agent passes on all that it can, and then all is detached.
func TestDrain(t *testing.T) {
	for name, end := range map[string]func(*machine){
		"empty":  func(m *machine) { m.clock.tick(t, drainLook) },
		"late":   func(m *machine) { m.clock.tick(t, 90*time.Second) },
		"signal": func(m *machine) { signalSelf(t) },
	} {
		for _, d := range daemons {
			m := newMachine(t, d.file)
			m.detach, m.drain = true, 90*time.Second
			p := m.running(d.run)
			if name != "empty" {
				m.clock.tick(t, time.Second)
				m.clock.tick(t, time.Second) // the first sweep has ended: there are flows
			}
			p.stop()
			m.logs("draining")
			if d.file == agentFile {
				m.awaits("offer (socket)")
				m.mu.Lock()
				for _, o := range m.offered {
					if o.Acceptance != topo.Static || o.Threshold != 0 {
						t.Errorf("draining, it offers %+v", o)
					}
				}
				m.mu.Unlock()
			}
			if d.file == datapathText {
				wantSoon(t, "draining, it reports a chain for new flows", func() bool { return m.asks(edgeAt, 5).NoChain })
			}
			if name == "late" {
				m.reloadsWhileDraining(d.file == agentFile)
			}
			if name != "empty" {
				m.clock.tick(t, drainLook)
				m.status() // it goes on
			}
			end(m)
			if err := p.wait(); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			if events := m.common(); !slices.Equal(events[len(events)-2:], []string{"detach", "close"}) {
				t.Errorf("%s: it ended with %q", name, events)
			}
		}
	}
}

// reloadsWhileDraining demands that a reload changes nothing at an agent, which would take new
// flows again.
func (m *machine) reloadsWhileDraining(isAgent bool) {
	m.t.Helper()
	m.hangup()
	if !isAgent {
		m.logs("configuration reloaded")
		return
	}
	m.logs("the agent drains")
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, o := range m.offered {
		if o.Threshold != 0 {
			m.t.Errorf("after a reload it offers %+v", o)
		}
	}
}

// signalSelf is a second SIGTERM for the daemons of this process.
func signalSelf(t *testing.T) {
	t.Helper()
	if err := unix.Kill(os.Getpid(), unix.SIGTERM); err != nil {
		t.Error(err)
	}
}
