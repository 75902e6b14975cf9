package daemon

import (
	"errors"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"proffer/api"
	"proffer/topo"
)

const lbFile = `node: {locator: 5f00:0:1:1::/64, interface: eth9}
control: %s
candidate_key: 000102030405060708090a0b0c0d0e0f
services:
  - name: web
    vip: 2001:db8:f::1
    port: 80
    dispatch: hunt
    servers: [{name: s1, locator: 5f00:0:2:1::/64}, {name: s2, locator: 5f00:0:2:2::/64}]
`

const agentFile = `node: {name: s1, locator: 5f00:0:2:1::/64, interface: eth9}
control: %s
services:
  - {name: web, vip: 2001:db8:f::1, port: 80, acceptance: static:4}
  - {name: api, vip: 2001:db8:f::2, port: 80, acceptance: static:4, load: page, page: /run/load}
`

// daemons are both roles, each with a configuration.
var daemons = []struct {
	run  entry
	file string
}{{LB, lbFile}, {Agent, agentFile}}

// TestOrder: the socket is taken before the link is watched, next hops are there
// before the first packet, and the plane is detached when all else has ended.
func TestOrder(t *testing.T) {
	m := newMachine(t, lbFile)
	p := m.start(LB)
	if line := m.logs("msg=ready"); !strings.Contains(line, "role=lb node=lb interface=eth9 xdp=native adopted=true control="+m.socket+" servers=2 next_hops_known=1 flow_table_mib=20") {
		t.Errorf("the log has %s", line)
	}
	p.end()
	m.wantEvents("preflight", "load", "watch eth9 (socket)", "refresh (socket)", "next hops (socket)", "attach (socket)", "unwatch", "close")
	m.logs("msg=detached role=lb")
}

// TestWarnings: the warnings that an operator should see.
func TestWarnings(t *testing.T) {
	m := newMachine(t, lbFile)
	p := m.start(LB)
	m.logs(`msg="flows will not outlive this process" reason="no bpffs"`)
	m.logs("signals are not authenticated: `proffer help keys`")
	p.end()
}

// TestStartFails: the error names every failure, and nothing stays.
func TestStartFails(t *testing.T) {
	loaded := []string{"preflight", "load"}
	watched := append(slices.Clone(loaded), "watch eth9 (socket)")
	known := append(slices.Clone(watched), "refresh (socket)", "next hops (socket)")
	for event, want := range map[string][]string{
		"preflight":   {"preflight"},
		"load":        loaded,
		"watch eth9":  append(slices.Clone(watched), "close"),
		"next hops":   append(slices.Clone(known), "unwatch (socket)", "close"),
		"attach":      append(slices.Clone(known), "attach (socket)", "unwatch (socket)", "close"),
		"/no/folder/": append(slices.Clone(loaded), "close"),
	} {
		for _, d := range daemons {
			m := newMachine(t, strings.Replace(d.file, "load: page, page: /run/load", "load: busy", 1))
			broken := m.fail(event)
			if event == "/no/folder/" {
				m.change(m.socket, "/proc/self/new/node.sock")
				broken = os.ErrNotExist
			}
			if err := m.start(d.run).wait(); !errors.Is(err, broken) {
				t.Errorf("%s broken: %v", event, err)
			}
			m.wantEvents(want...)
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
	m.wantEvents("preflight", "load", "watch eth9 (socket)", "refresh (socket)", "next hops (socket)", "unwatch (socket)", "close")
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
	if events := m.happened(); !slices.Equal(events[before:], []string{"refresh (socket)"}) {
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
	if s.Role != "lb" || s.Node != "lb" || s.Locator != "5f00:0:1:1::/64" || s.Interface != "eth9" || s.XDP != "native" || s.PID != os.Getpid() || !s.Adopted || s.Counters["steered"] != 7 {
		t.Errorf("the LB answers %+v", s)
	}
	if want := []api.ServiceStatus{{Name: "web", VIP: "[2001:db8:f::1]:80", Mode: "hunt, 2 of 2 servers"}}; !slices.Equal(s.Services, want) {
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
