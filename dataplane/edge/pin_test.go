package edge_test

import (
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"

	"proffer/proof/rig"
	"proffer/topo"
	"proffer/wire"
)

// begins begins as many flows of the client network, and returns their instances.
func (b *bench) begins(t *testing.T, many int) (at map[string]wire.Instance) {
	t.Helper()
	at = map[string]wire.Instance{}
	for port := range many {
		f := from4("udp", 1000+port)
		at[f.String()] = b.tunnelled(t, f.String(), b.fromClient(t, f.packet()), f.packet(), "flow_begun", "steer").Instance
	}
	return at
}

// keeps demands that known flows go where they went.
func (b *bench) keeps(t *testing.T, at map[string]wire.Instance) {
	t.Helper()
	for port := range len(at) {
		f := from4("udp", 1000+port)
		if now := b.tunnelled(t, f.String(), b.fromClient(t, f.packet()), f.packet(), "steer").Instance; now != at[f.String()] {
			t.Errorf("%v goes to %+v, and went to %+v", f, now, at[f.String()])
		}
	}
}

// TestTakesOver: the programs of an LB that has ended stay on all links; the next LB takes over the flows with
// instances that have other places in its file, counts their packets at the same instances, and looks at their sources
// again. It leaves a link that it has not. Detach leaves nothing.
func TestTakesOver(t *testing.T) {
	cfg := config()
	cfg.Pin = filepath.Join(rig.BPFFS(t), "edge")
	first := load(t, &bench{macs: enter(t), seen: rig.Hits{}}, cfg, "virtual_time")
	must(t, first.Attach())
	at := first.begins(t, 30)
	must(t, first.Close())
	for _, link := range []string{"clients", "world", nodesLink} {
		if !isOn(t, link) {
			t.Errorf("no program is on %s after the end", link)
		}
	}
	next := config()
	next.Pin = cfg.Pin
	instances := next.Services[0].Instances
	slices.Reverse(instances)
	next.Services[0].Prefixes = []netip.Prefix{netip.MustParsePrefix("10.1.0.0/16")}
	second := load(t, &bench{macs: first.macs, seen: rig.Hits{}}, next, "virtual_time")
	if !second.Adopted() || second.Forgotten() != "" {
		t.Errorf("adopted %v, forgotten %q", second.Adopted(), second.Forgotten())
	}
	must(t, second.Attach())
	second.keeps(t, at)
	met := map[wire.Instance]uint64{}
	for _, i := range at {
		met[i]++
	}
	counts, err := second.Counts(service)
	must(t, err)
	for i, c := range instances {
		if want := met[wire.Instance{Server: c.Server, Core: c.Core, Service: service}]; counts[i].Packets.Total() != want || want == 0 {
			t.Errorf("instance %+v counts %+v, want %d packets", c, counts[i], want)
		}
	}
	forged := from6("udp", 1000)
	second.fromClient(t, forged.packet()).Is(t, "a prefix that is gone", rig.XDPDrop, nil, "drop_wrong_side")
	must(t, second.Detach())
	for _, link := range []string{"clients", "world", nodesLink} {
		if isOn(t, link) {
			t.Errorf("a program is on %s after the detaching", link)
		}
	}
	if left, err := filepath.Glob(filepath.Join(cfg.Pin, "*", "*")); err != nil || len(left) > 0 {
		t.Errorf("pins stay: %v, %v", left, err)
	}
}

// TestTakeoverCopies: a table of another size gets the flows of that before, as far as there is room; another
// flow_key begins without.
func TestTakeoverCopies(t *testing.T) {
	for _, c := range []struct {
		name      string
		entries   int
		key       byte
		forgotten string
	}{
		{"larger", 4096, 0, ""},
		{"smaller", 10, 0, "20 flows: the table has 10 elements now, it had 1024"},
		{"another key", 1024, 1, "30 flows: their digests are by another flow_key"},
	} {
		t.Run(c.name, func(t *testing.T) {
			cfg := config()
			cfg.Pin = filepath.Join(rig.BPFFS(t), "edge")
			first := load(t, &bench{macs: enter(t), seen: rig.Hits{}}, cfg, "virtual_time")
			must(t, first.Attach())
			at := first.begins(t, 30)
			must(t, first.Close())
			next := config()
			next.Pin, next.Flows.Entries = cfg.Pin, c.entries
			next.Key[15] += c.key
			second := load(t, &bench{macs: first.macs, seen: rig.Hits{}}, next, "virtual_time")
			must(t, second.Attach())
			if second.Forgotten() != c.forgotten {
				t.Errorf("forgotten %q, want %q", second.Forgotten(), c.forgotten)
			}
			if c.forgotten == "" {
				second.keeps(t, at)
			}
			must(t, second.Detach())
		})
	}
}

// TestLeavesLinks: a takeover leaves a link that the next file has not; a layout of another version begins without
// flows, and is named.
func TestLeavesLinks(t *testing.T) {
	cfg := config()
	cfg.Pin = filepath.Join(rig.BPFFS(t), "edge")
	first := load(t, &bench{macs: enter(t), seen: rig.Hits{}}, cfg, "virtual_time")
	must(t, first.Attach())
	first.begins(t, 3)
	must(t, first.Close())
	layout, err := filepath.Glob(filepath.Join(cfg.Pin, "*", "layout-edge-1"))
	if err != nil || len(layout) != 1 {
		t.Fatalf("layouts %v, %v", layout, err)
	}
	must(t, os.Rename(layout[0], strings.Replace(layout[0], "edge-1", "edge-0", 1)))
	next := config()
	next.Pin, next.Nodes, next.World = cfg.Pin, []topo.EdgeNode{{Server: 1, Addr: nodeAddr[0], Link: "world", Cores: 2}}, nodesLink
	second := load(t, &bench{macs: first.macs, seen: rig.Hits{}}, next, "virtual_time")
	if want := "3 flows: the entries are of layout-edge-0, this version reads layout-edge-1"; second.Forgotten() != want {
		t.Errorf("forgotten %q, want %q", second.Forgotten(), want)
	}
	must(t, second.Attach())
	must(t, second.Detach())
}

// TestFirstLinkIsGone: the link to clients was deleted and made again while no daemon ran; the next LB begins on all
// links.
func TestFirstLinkIsGone(t *testing.T) {
	cfg := config()
	cfg.Pin = filepath.Join(rig.BPFFS(t), "edge")
	first := load(t, &bench{macs: enter(t), seen: rig.Hits{}}, cfg, "virtual_time")
	must(t, first.Attach())
	must(t, first.Close())
	must(t, netlink.LinkDel(linkBy(t, "clients")))
	mac := first.macs["clients"]
	must(t, netlink.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "clients", MTU: 1600, HardwareAddr: mac[:]}, PeerName: "clients-far"}))
	must(t, netlink.LinkSetUp(linkBy(t, "clients")))
	second := load(t, &bench{macs: first.macs, seen: rig.Hits{}}, cfg, "virtual_time")
	must(t, second.Attach())
	for _, link := range []string{"clients", "world", nodesLink} {
		if !isOn(t, link) {
			t.Errorf("no program is on %s", link)
		}
	}
	must(t, second.Detach())
	if left, err := filepath.Glob(filepath.Join(cfg.Pin, "*", "*")); err != nil || len(left) > 0 {
		t.Errorf("pins stay: %v, %v", left, err)
	}
}
