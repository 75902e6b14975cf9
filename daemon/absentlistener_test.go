package daemon

import (
	"errors"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"proffer/listeners"
	"proffer/topo"
)

const absentFile = `node: {name: s1, locator: 5f00:0:2:1::/64, interface: eth9, domain: any}
signal_keys: none
control: %s
services:
  - {name: web, vip: 2001:db8:f::1, port: 80, acceptance: static:4}
  - {name: dns, vip: 192.0.2.53, port: 53, protocol: udp, acceptance: always}
  - {name: box, vip: 192.0.2.80, port: 80, acceptance: always, owner: netns /run/netns/box}
  - {name: far, vip: 192.0.2.81, port: 80, acceptance: always, owner: table}
`

// TestAbsent: a service without a listener is a problem in status when a listener is gone, and some
// seconds after the start where none has come yet; log and status have it once, and that it is mended.
// Where sockets are out of sight there is none.
func TestAbsent(t *testing.T) {
	m := newMachine(t, absentFile)
	web := topo.VIP{Addr: netip.MustParseAddr("2001:db8:f::1"), Port: 80}
	dns := topo.VIP{Addr: netip.MustParseAddr("192.0.2.53"), Port: 53, Protocol: topo.UDP}
	box := topo.VIP{Addr: netip.MustParseAddr("192.0.2.80"), Port: 80}
	at := func(now time.Duration, of ...topo.VIP) {
		m.mu.Lock()
		m.listens = map[topo.VIP][]listeners.Process{}
		for _, vip := range of {
			m.listens[vip] = []listeners.Process{{PID: 7, Name: "app"}}
		}
		m.mu.Unlock()
		m.clock.set(now)
	}
	want := func(when string, problems ...string) {
		t.Helper()
		got := m.status().Problems
		for i, p := range got {
			got[i], _, _ = strings.Cut(p, ": start its application")
		}
		if !slices.Equal(got, problems) {
			t.Errorf("%s: the problems are\n%q, want\n%q", when, got, problems)
		}
	}
	const (
		noWeb = "service web: no process listens at [2001:db8:f::1]:80 "
		noDNS = "service dns: no process listens at udp 192.0.2.53:53 "
		noBox = "service box: no process listens at 192.0.2.80:80 in /run/netns/box "
	)
	at(time.Hour, web)
	p := m.running(Agent)
	m.logs("service=box") // the first look
	want("just started")
	at(time.Hour+listenWithin/2, web)
	want("within the first seconds")
	at(time.Hour+listenWithin, web)
	want("none came", noDNS+"yet", noBox+"yet")

	at(time.Hour+20*time.Second, dns, box)
	want("others came, the first is gone", noWeb+"any more")
	if line := m.logs("service web: no process"); !strings.Contains(line, "level=WARN") {
		t.Errorf("logged as %s", line)
	}
	m.logs("msg=\"a process listens for the service again\" service=dns")
	at(time.Hour+30*time.Second, web)
	want("the first is back, the others gone", noDNS+"any more", noBox+"any more")
	m.logs("msg=\"a process listens for the service again\" service=web")
	m.mu.Lock()
	m.fails["listeners/run/netns/box"] = errors.New("no way in")
	m.mu.Unlock()
	at(time.Hour+40*time.Second, web)
	want("a namespace is out of sight", noDNS+"any more")
	m.logs("no way in")
	at(time.Hour+50*time.Second, web)
	want("as before", noDNS+"any more")
	p.end()
	for len(m.lines) > 0 {
		if line := <-m.lines; strings.Contains(line, "no process listens at") || strings.Contains(line, "no way in") {
			t.Errorf("logged again: %s", line)
		}
	}
}

// TestAbsentIsLogged: the log has it without a status, too.
func TestAbsentIsLogged(t *testing.T) {
	m := newMachine(t, agentFile)
	p := m.running(Agent)
	m.logs("service=api") // the first look
	m.clock.set(listenWithin)
	m.clock.tick(t, coresEvery)
	for _, service := range []string{"web", "api"} {
		if line := m.logs("service " + service + ": no process listens at"); !strings.Contains(line, "level=WARN") {
			t.Errorf("logged as %s", line)
		}
	}
	p.end()
}

// TestNoneTakesFlows: a service without a server, or without one that has a weight, is named at the start,
// after a reload and in status, until a reload mends it.
func TestNoneTakesFlows(t *testing.T) {
	const both = "[{name: s1, locator: 5f00:0:2:1::/64}, {name: s2, locator: 5f00:0:2:2::/64}]"
	drained := strings.ReplaceAll(both, "/64}", "/64, weight: 0}")
	const (
		empty = "service web at [2001:db8:f::1]:80 has no server"
		zero  = "service web at [2001:db8:f::1]:80 takes no new flows, as all its servers have weight 0"
	)
	m := newMachine(t, strings.Replace(lbFile, both, drained, 1))
	want := func(problem, end string) {
		t.Helper()
		line := m.logs("msg=\"a service takes no new flows\"")
		m.logs(end)
		got := m.status().Problems
		if !strings.Contains(line, "level=WARN") || !strings.Contains(line, problem) || len(got) != 1 || !strings.HasPrefix(got[0], problem) {
			t.Errorf("log %s and status %q, want %s", line, got, problem)
		}
	}
	reload := func(old, new string) {
		m.change(old, new)
		m.hangup()
	}
	m.weightless = true
	p := m.start(LB)
	want(zero, "msg=ready")
	reload(drained, "[]")
	want(empty, "configuration reloaded")
	reload("servers: []", "servers: "+strings.Replace(drained, "weight: 0", "weight: 1", 1))
	m.logs("configuration reloaded")
	if got := m.status().Problems; len(got) > 0 {
		t.Errorf("with a server that has a weight, status has the problems %q", got)
	}
	p.end()
}

// TestNoNodeTakesFlows: likewise an edge LB of which all nodes have weight 0.
func TestNoNodeTakesFlows(t *testing.T) {
	drained := strings.ReplaceAll(edgeText, "link: l", "link: l, weight: 0")
	m := newMachine(t, drained)
	p := m.start(Edge)
	const problem = "no new flow is served, as all `nodes` have weight 0"
	if line := m.logs("no node takes new flows"); !strings.Contains(line, "level=WARN") || !strings.Contains(line, problem) {
		t.Errorf("the log has %s", line)
	}
	m.logs("msg=ready")
	if got := m.status().Problems; len(got) != 1 || !strings.HasPrefix(got[0], problem) {
		t.Errorf("status has the problems %q", got)
	}
	m.change("192.0.2.2, link: l, weight: 0", "192.0.2.2, link: l")
	m.hangup()
	m.logs("configuration reloaded")
	if got := m.status().Problems; len(got) > 0 {
		t.Errorf("with a node that has a weight, status has the problems %q", got)
	}
	p.end()
}
