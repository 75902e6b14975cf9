package daemon

import (
	"context"
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"proffer/topo"
)

const farmText = `farm: shop
version: 7
nodes:
  lb1: {lb: 10.0.0.1, locator: 5f00:0:1:1::/64, control: CONTROL, state: STATE}
  s1: {server: 10.0.0.2, locator: 5f00:0:2:1::/64}
  s2: {server: 10.0.0.3, locator: 5f00:0:2:2::/64}
  l1: {server: 10.0.0.4, delivery: l2}
services:
  web: {vip: 192.0.2.10, port: 80, dispatch: hunt, servers: [s1, s2]}
`

const farmSecrets = "farm: shop\ncandidate_key: \"000102030405060708090a0b0c0d0e0f\"\n"

// farmMachine is a machine with a farm's file, and the secrets of its LB beside it.
func farmMachine(t *testing.T) (*machine, FarmFile) {
	m := newMachine(t, strings.ReplaceAll(farmText, "CONTROL", "%s"))
	at := FarmFile{Path: m.file, Secrets: filepath.Join(filepath.Dir(m.file), "secrets.yaml"), Name: "lb1"}
	if err := os.WriteFile(at.Secrets, []byte(farmSecrets), 0o600); err != nil {
		t.Fatal(err)
	}
	return m, at
}

// atHome has every address on eth0.
func atHome(netip.Addr) (string, error) { return "eth0", nil }

// TestFarmReloads: a change of the farm's file is applied without a signal, a lower version and a mistake are
// refused, and the last good farm stays.
func TestFarmReloads(t *testing.T) {
	m, at := farmMachine(t)
	m.running(func(ctx context.Context, _ string, host *Host) error {
		host.LinkOf = atHome
		return Farm(ctx, at, host)
	})
	m.mu.Lock()
	links, near := m.applied.Interface, m.applied.Near
	m.mu.Unlock()
	if links != "eth0" || len(near) != 2 {
		t.Errorf("link %s, near %v", links, near)
	}
	m.change("servers: [s1, s2]", "servers: [{name: s1, weight: 4}, s2]") // no SIGHUP
	m.logs("configuration reloaded")
	m.change("version: 7", "version: 6")
	m.logs("node.yaml:2:10: version: 6 is below 7, which this node runs")
	m.change("version: 6", "version: 8")
	m.logs("configuration reloaded")
	m.change("servers: [{name: s1, weight: 4}, s2]", "servers: [s9]")
	m.logs(`\"s9\" is no node of this farm`)
	m.change("lb: 10.0.0.1", "edge: 10.0.0.1")
	m.logs("configuration not reloaded")
	m.wantReloads(2, 3)
}

// TestFarmRefuses: what a node cannot run is told before any program is loaded.
func TestFarmRefuses(t *testing.T) {
	for _, c := range []struct {
		change func(*FarmFile)
		linkOf func(netip.Addr) (string, error)
		want   string
	}{
		{func(f *FarmFile) { f.Name = "lb2" }, atHome, `nodes: have no "lb2", the name of this node; did you mean lb1?`},
		{func(f *FarmFile) { f.Name = "l1" }, atHome, "node l1 has delivery: l2, so nothing of Proffer runs there"},
		{func(f *FarmFile) { f.Path = "/nowhere/farm.yaml" }, atHome, "read the farm: open /nowhere/farm.yaml"},
		{func(f *FarmFile) { f.Secrets = "/nowhere/secrets.yaml" }, atHome, "read the secrets: open /nowhere/secrets.yaml"},
		{func(f *FarmFile) { os.Chmod(f.Secrets, 0o644) }, atHome, "gives every user of this host the keys: `chmod 600 "},
		{func(f *FarmFile) {
			os.WriteFile(f.Secrets, []byte(strings.Replace(farmSecrets, "shop", "mall", 1)), 0o600)
		}, atHome, "farm: is of another farm; want the secrets of shop"},
		{func(f *FarmFile) { os.WriteFile(f.Secrets, []byte("farm: shop\n"), 0o600) }, atHome, "candidate_key: is missing"},
		{func(f *FarmFile) { f.Name = "s1" }, atHome, "node: is missing; want a name"},
		{func(*FarmFile) {}, func(netip.Addr) (string, error) { return "", errors.New("is the address of no link of this host") }, "nodes.lb1.lb: is the address of no link of this host"},
	} {
		m, at := farmMachine(t)
		c.change(&at)
		host := m.host()
		host.LinkOf = c.linkOf
		if err := Farm(t.Context(), at, host); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("got %v\nwant %s", err, c.want)
		}
	}
}

// TestLinkWith: this host has the loopback address, and no address of documentation.
func TestLinkWith(t *testing.T) {
	if name, err := linkWith(netip.MustParseAddr("127.0.0.1")); err != nil || name != "lo" {
		t.Errorf("127.0.0.1: %s, %v", name, err)
	}
	if _, err := linkWith(netip.MustParseAddr("192.0.2.99")); err == nil || !strings.Contains(err.Error(), "192.0.2.99 is the address of no link of this host") {
		t.Error(err)
	}
}

// readHops are next hops that were read.
type readHops struct {
	nextHops
	hops    topo.NextHops
	waiting topo.Waiting
	asked   *[]netip.Addr
}

func (h readHops) Read() (topo.NextHops, topo.Waiting, error) {
	copied := topo.NextHops{}
	for p, mac := range h.hops {
		copied[p] = mac
	}
	return copied, h.waiting, nil
}

func (h readHops) Refresh(addrs []netip.Addr) error {
	*h.asked = append(*h.asked, addrs...)
	return nil
}

// TestNear: packets for a locator go to the node's address where that is on the link, and else by the route of the
// locator; a neighbour that is not resolved yet is asked for in the place of the locator.
func TestNear(t *testing.T) {
	prefix, addr := netip.MustParsePrefix, netip.MustParseAddr
	router, node := topo.MAC{1}, topo.MAC{2}
	var asked []netip.Addr
	inner := readHops{asked: &asked, hops: topo.NextHops{
		prefix("::/0"): router, prefix("5f00:0:2:3::/64"): router,
		prefix("2001:db8:1::/64"): {}, prefix("10.0.0.0/24"): {}, prefix("2001:db8:1::2/128"): node,
		prefix("198.51.100.0/24"): {}, // its gateway waits
	}, waiting: topo.Waiting{prefix("198.51.100.0/24"): {addr("10.0.0.9")}}}
	near := []topo.Neighbour{
		{Locator: prefix("5f00:0:2:1::/64"), Addr: addr("2001:db8:1::2")}, // resolved
		{Locator: prefix("5f00:0:2:2::/64"), Addr: addr("10.0.0.3")},      // on the link, not resolved
		{Locator: prefix("5f00:0:2:3::/64"), Addr: addr("2001:db8:9::3")}, // behind the router
		{Locator: prefix("5f00:0:2:4::/64"), Addr: addr("203.0.113.7")},   // nowhere
		{Locator: prefix("5f00:0:2:5::/64"), Addr: addr("198.51.100.5")},  // behind a gateway that waits
	}
	h := &nearHops{NextHops: inner, near: func() []topo.Neighbour { return near }}
	var targets []netip.Addr
	for _, n := range near {
		targets = append(targets, n.Locator.Addr())
	}
	if err := h.Refresh(targets); err != nil {
		t.Fatal(err)
	}
	want := append([]netip.Addr{addr("2001:db8:1::2"), addr("10.0.0.3")}, targets[2:]...)
	if !reflect.DeepEqual(asked, want) {
		t.Errorf("asked for %v, want %v", asked, want)
	}
	hops, _, err := h.Read()
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []topo.MAC{node, {}, router, router, router} {
		if mac, known := hops.Lookup(targets[i]); mac != want || known != (want != topo.MAC{}) {
			t.Errorf("%v: %v, want %v", targets[i], mac, want)
		}
	}
}
