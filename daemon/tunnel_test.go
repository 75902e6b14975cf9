package daemon

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

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
	r := &edgeLB{from: ownFile(path), started: read(edgeFile(t))}
	for _, c := range []struct{ old, new, key string }{
		{"name: gate", "name: other", "name"},
		{"gate.sock", "other.sock", "control"},
		{"edges/edge", "edges/other", "pin"},
		{`flow_key: "00`, `flow_key: "ff`, "flow_key"},
		{"clients: eth0", "clients: eth9", "clients"},
		{"world: eth1", "world: eth9", "world"},
		{"entries: 1024", "entries: 2048", "flow_table"},
		{"idle: 90s", "idle: 91s", "flow_table"},
		{"recovery: all", "recovery: tcp", "recovery"},
	} {
		read(strings.Replace(edgeFile(t), c.old, c.new, 1))
		if err := r.reload(t.Context()); err == nil || err.Error() != c.key+" cannot change while the daemon runs: restart it" {
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

// TestNFReload: an nf takes another file but for its identity, and functions in user space; a mistake changes nothing.
func TestNFReload(t *testing.T) {
	text, err := os.ReadFile("../config/testdata/nf.yaml")
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "nf.yaml")
	read := func(old, changed string) *topo.Datapath {
		t.Helper()
		if err := os.WriteFile(path, []byte(strings.Replace(string(text), old, changed, 1)), 0o600); err != nil {
			t.Fatal(err)
		}
		cfg, err := readDatapath(t.Context(), path)
		if err != nil {
			t.Fatal(err)
		}
		return cfg
	}
	was := read("", "")
	for _, c := range []struct{ old, new, want string }{
		{"name: n1", "name: n2", "name cannot change"},
		{"n1.sock", "n2.sock", "control cannot change"},
		{"edges/nf", "edges/other", "pin cannot change"},
		{"number: 1", "number: 2", "number cannot change"},
		{"link: eth0", "link: eth1", "link cannot change"},
		{"service: 6", "service: 7", "function: user cannot change"},
		{"cores: 2", "cores: 1", "cores and cpus cannot change while the daemon runs a function in user space"},
	} {
		if err := sameNF(was, read(c.old, c.new)); err == nil || !strings.HasPrefix(err.Error(), c.want) {
			t.Errorf("%s for %s: %v", c.new, c.old, err)
		}
	}
	for old, changed := range map[string]string{
		"192.0.2.1": "192.0.2.3", "10.1.0.0/16": "10.3.0.0/16", "idle: 1m": "idle: 2m", "linger: 2s": "linger: 3s", "time: 2us": "time: 3us",
	} {
		if err := sameNF(was, read(old, changed)); err != nil {
			t.Errorf("%s for %s: %v", changed, old, err)
		}
	}
	m := newMachine(t, datapathText)
	p := m.running(NF)
	m.change("time: 2us", "time: nothing")
	m.hangup()
	m.logs("configuration not reloaded, the old one stays")
	m.change("time: nothing", "time: 3us")
	m.hangup()
	m.logs("configuration reloaded")
	if events := m.happened(); strings.Count(strings.Join(events, " "), "apply") != 1 || m.status().Reloads != 1 {
		t.Errorf("events %q", events)
	}
	p.end()
}

// TestUpkeepLogsOnce: an error that stays is logged once, and again when it comes again.
func TestUpkeepLogsOnce(t *testing.T) {
	m := newMachine(t, lbFile)
	errs := []error{errors.New("one"), errors.New("one"), errors.New("two"), nil, errors.New("two")}
	h := m.host()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	turn := 0
	go func() {
		ended <- h.each(ctx, time.Second, func() error {
			err := errs[turn]
			if turn++; turn == len(errs) {
				cancel()
			}
			return err
		})
	}()
	for range errs {
		m.clock.tick(t, time.Second)
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
