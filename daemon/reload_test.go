package daemon

import (
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"proffer/api"
	"proffer/topo"
)

// change replaces a part of the configuration that stands there once.
func (m *machine) change(old, new string) {
	m.t.Helper()
	text, err := os.ReadFile(m.file)
	if err != nil || strings.Count(string(text), old) != 1 {
		m.t.Fatalf("%q does not stand once in the configuration: %v\n%s", old, err, text)
	}
	m.configure(strings.Replace(string(text), old, new, 1))
}

// wantReloads demands the counts of status.
func (m *machine) wantReloads(applied, refused uint64) {
	m.t.Helper()
	if s := m.status(); s.Reloads != applied || s.Refused != refused {
		m.t.Errorf("%d reloads and %d refused, want %d and %d", s.Reloads, s.Refused, applied, refused)
	}
}

// TestReload: on SIGHUP the file's services go to the plane, its servers' next
// hops are resolved, and status shows it.
func TestReload(t *testing.T) {
	m := newMachine(t, lbFile)
	p := m.running(LB)
	m.change("{name: s2, locator: 5f00:0:2:2::/64}", "{name: s3, locator: 5f00:0:2:3::/64}")
	m.change("dispatch: hunt", "dispatch: single")
	m.hangup()
	m.logs(`level=DEBUG msg=reload step="add server s3 5f00:0:2:3::/64 weight `)
	m.logs(`level=INFO msg=reload plan="1 server added, 1 table made, 1 server removed`)
	m.logs("configuration reloaded")
	m.wantReloads(1, 0)
	m.mu.Lock()
	applied, targets := m.applied, m.targets
	m.mu.Unlock()
	if applied == nil || applied.Services[0].Servers[1].Name != "s3" {
		t.Errorf("the plane was given %+v", applied)
	}
	if want := []netip.Addr{netip.MustParseAddr("5f00:0:2:1::"), netip.MustParseAddr("5f00:0:2:3::")}; !slices.Equal(targets, want) {
		t.Errorf("next hops are kept for %v, want %v", targets, want)
	}
	if mode := m.status().Services[0].Mode; mode != "single, 2 servers" {
		t.Errorf("status shows %q", mode)
	}
	p.end()
}

// TestWeights: the plane is loaded with the weights of the daemon's weigher at
// that time, and given those of a later time at a reload.
func TestWeights(t *testing.T) {
	m := newMachine(t, lbFile)
	m.clock.set(4 * time.Second)
	p := m.running(LB)
	m.wantWeight(4)
	m.clock.set(6 * time.Second)
	m.hangup()
	m.logs("configuration reloaded")
	m.wantWeight(6)
	p.end()
}

// wantWeight demands the weight of the second server that the plane has.
func (m *machine) wantWeight(want int) {
	m.t.Helper()
	m.mu.Lock()
	defer m.mu.Unlock()
	if got := m.applied.Services[0].Servers[1].Weight; got != want {
		m.t.Errorf("the second server has weight %d, want %d", got, want)
	}
}

// TestReloadOfMistake: the old configuration stays, is shown, and the next good
// one is applied.
func TestReloadOfMistake(t *testing.T) {
	m := newMachine(t, lbFile)
	p := m.running(LB)
	m.change("dispatch: hunt", "dispatch: hint")
	m.hangup()
	if line := m.logs("configuration not reloaded, the old one stays"); !strings.Contains(line, m.file+":10:15: services[0].dispatch") {
		t.Errorf("the log has %s", line)
	}
	m.wantReloads(0, 1)
	m.change("dispatch: hint", "dispatch: single")
	m.fail("apply")
	m.hangup()
	m.logs("apply is broken")
	m.wantReloads(0, 2)
	if mode := m.status().Services[0].Mode; mode != "hunt, choices 2, 2 servers" {
		t.Errorf("status shows %q, which was not applied", mode)
	}
	m.mu.Lock()
	if d := m.applied.Services[0].Dispatch; d != topo.Hunt {
		t.Errorf("the plane was left with dispatch %v, want that of before", d)
	}
	delete(m.fails, "apply")
	m.mu.Unlock()
	if s := m.status(); !strings.HasPrefix(s.NotReloaded, "configuration not reloaded, the old one stays: ") || s.Problems[0] != s.NotReloaded {
		t.Errorf("not reloaded: %q, problems %q", s.NotReloaded, s.Problems)
	}
	m.hangup()
	m.logs("configuration reloaded")
	m.wantReloads(1, 2)
	if s := m.status(); s.NotReloaded != "" || len(s.Problems) > 0 && strings.Contains(s.Problems[0], "reload") {
		t.Errorf("after a reload not reloaded: %q, problems %q", s.NotReloaded, s.Problems)
	}
	p.end()
}

// TestRefusalIsFirst: a refused reload stands before the problems that were found.
func TestRefusalIsFirst(t *testing.T) {
	var r reloads
	r.refuse(errors.Join(errors.New("a mistake"), errors.New("one more")), slog.New(slog.DiscardHandler))
	s := api.Status{Problems: []string{"another"}}
	r.report(&s)
	if want := []string{"configuration not reloaded, the old one stays: a mistake; one more", "another"}; !slices.Equal(s.Problems, want) || s.Refused != 1 {
		t.Errorf("got %+v, want the problems %q", s, want)
	}
}

// TestReloadOfWhatIsFixed: programs are loaded with it, so it needs a new daemon.
func TestReloadOfWhatIsFixed(t *testing.T) {
	for _, c := range []struct {
		run            entry
		file, old, new string
		key            string
	}{
		{LB, lbFile, "5f00:0:1:1::/64", "5f00:0:1:2::/64", "node.locator"},
		{LB, lbFile, "interface: eth9", "interface: eth8", "node.interface"},
		{LB, lbFile, "interface: eth9", "interface: eth9, name: lb2", "node.name"},
		{LB, lbFile, "interface: eth9", "interface: eth9, pin: /sys/fs/bpf/new", "node.pin"},
		{LB, lbFile, "domain: any", "domain: [5f00::/16]", "node.domain"},
		{LB, lbFile, "node.sock", "new.sock", "control"},
		{LB, lbFile, "pools.json", "other.json", "state"},
		{LB, lbFile, "candidate_key: 00", "flow_table: {entries: 4096}\ncandidate_key: 00", "flow_table"},
		{LB, lbFile, "candidate_key: 00", "candidate_key: 01", "candidate_key"},
		{Agent, agentFile, "5f00:0:2:1::/64", "5f00:0:2:2::/64", "node.locator"},
	} {
		m := newMachine(t, c.file)
		p := m.running(c.run)
		m.change(c.old, c.new)
		m.hangup()
		want := c.key + " cannot change while the daemon runs: restart it"
		if line := m.logs("configuration"); !strings.Contains(line, want) {
			t.Errorf("the log has %s, want %s", line, want)
		}
		p.end()
	}
}

// TestEarlyHangup: SIGHUP while the programs are loaded does not end the daemon,
// and the file is read again when it is ready.
func TestEarlyHangup(t *testing.T) {
	for _, d := range daemons {
		m := newMachine(t, d.file)
		m.loading = m.hangup
		p := m.running(d.run)
		m.logs("configuration reloaded")
		m.wantReloads(1, 0)
		p.end()
	}
}

const keys = `keys:
  - id: %d
    farm: "11111111111111111111111111111111"
    server: "1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a"
`

// TestReloadOfKeys: an agent takes its signal keys again.
func TestReloadOfKeys(t *testing.T) {
	m := newMachine(t, agentFile)
	file := filepath.Join(t.TempDir(), "s1.keys")
	if err := os.WriteFile(file, fmt.Appendf(nil, keys, 1), 0o600); err != nil {
		t.Fatal(err)
	}
	m.change("signal_keys: none", "signal_keys: "+file)
	p := m.running(Agent)
	if err := os.WriteFile(file, fmt.Appendf(nil, keys, 2), 0o600); err != nil {
		t.Fatal(err)
	}
	m.hangup()
	m.logs("configuration reloaded")
	m.mu.Lock()
	if len(m.keys) != 1 || m.keys[0].ID != 2 {
		t.Errorf("the plane was given the keys %+v", m.keys)
	}
	m.mu.Unlock()
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	m.hangup()
	m.logs("read signal keys: open " + file)
	m.wantReloads(1, 1)
	p.end()
}

// TestAgentReload: on SIGHUP the file's services go to the plane, with the sources of their loads;
// those no longer read are closed. If the plane refuses them, all stays.
func TestAgentReload(t *testing.T) {
	m := newMachine(t, agentFile)
	p := m.running(Agent)
	m.change("acceptance: static:4}\n  - {name: api", "acceptance: static:9}\n  - {name: api")
	m.change("acceptance: static:4, load: page, page: /run/load}", "acceptance: always}\n  - {name: new, vip: 2001:db8:f::3, port: 80, acceptance: always, load: page, page: /run/new}")
	broken := m.fail("offer")
	m.hangup()
	m.logs(broken.Error())
	m.wantReloads(0, 1)
	if n := len(m.status().Services); n != 2 {
		t.Errorf("status shows %d services, which were refused", n)
	}
	m.mu.Lock()
	delete(m.fails, "offer")
	m.page.closed = false
	m.mu.Unlock()
	m.hangup()
	m.logs("msg=reload added=3 kept=0 removed=0")
	m.logs("configuration reloaded")
	m.wantReloads(1, 1)
	m.mu.Lock()
	if len(m.offered) != 3 || m.offered[0].Threshold != 9 || m.offered[2].Page != "/run/new" || !m.page.closed {
		t.Errorf("the plane was given %+v, the old page closed: %v", m.offered, m.page.closed)
	}
	m.mu.Unlock()
	if services := m.status().Services; len(services) != 3 || services[0].Mode != "static:9, load work" || services[1].Load.Word != nil || services[2].Load.Word == nil {
		t.Errorf("status shows %+v", services)
	}
	p.end()
}
