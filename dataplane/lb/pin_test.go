package lb_test

import (
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/vishvananda/netlink"

	"proffer/dataplane/internal/plane"
	"proffer/dataplane/lb"
	"proffer/proof/rig"
	"proffer/topo"
	"proffer/wire"
)

// attached returns the id of the XDP program on the device, 0 for none.
func attached(t *testing.T) uint32 {
	t.Helper()
	l, err := netlink.LinkByName(rig.Device)
	if err != nil {
		t.Fatal(err)
	}
	if x := l.Attrs().Xdp; x != nil && x.Attached {
		return x.ProgId
	}
	return 0
}

// started is an LB that is attached.
func started(t *testing.T, cfg *topo.LB) *lb.LB {
	t.Helper()
	l, err := lb.NewWith(cfg, rig.InVirtualTime)
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Attach(); err != nil {
		t.Fatal(err)
	}
	return l
}

func namesBelow(t *testing.T, dir string) (names []string) {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(dir, "*", "*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range found {
		names = append(names, filepath.Base(path))
	}
	return names
}

// TestSignalsOutliveDaemon: the attached program still reaches lb_signal, although the kernel
// empties an array of programs that neither a pin nor a process holds.
func TestSignalsOutliveDaemon(t *testing.T) {
	rig.Enter(t)
	cfg := rig.LBConfig(rig.Hunting(2, 8, rig.Members))
	cfg.Pin = filepath.Join(rig.BPFFS(t), "lb")
	first := started(t, cfg)
	id := attached(t)
	first.Die(t)
	p, err := ebpf.NewProgramFromID(ebpf.ProgramID(id))
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	data := rig.Inward(rig.HuntPort, wire.ACK)
	frame := rig.SignalFrom(6, data, wire.NotMine, wire.Generation(rig.ClientISN))
	for range 50 { // a worker of the kernel empties it, later
		action, err := p.Run(&ebpf.RunOptions{Data: frame, DataOut: make([]byte, 4096)})
		if err != nil || action != rig.XDPDrop { // lb_signal has no next hop; XDP_ABORTED without it
			t.Fatalf("a signal to the attached program: action %d, %v", action, err)
		}
		time.Sleep(2 * time.Millisecond)
	}
	second := started(t, cfg)
	if err := errors.Join(second.Detach(), second.Close()); err != nil {
		t.Error(err)
	}
}

// TestTakeover: docs/failures.md, LB process crashes: its program goes on forwarding,
// and the next one has its flows, by the same numbers of servers, although its
// configuration is another.
func TestTakeover(t *testing.T) {
	rig.Enter(t)
	dir := filepath.Join(rig.BPFFS(t), "proffer", "lb")
	cfg := rig.LBConfig(rig.Hunting(2, 8, rig.Members))
	cfg.Pin = dir
	first := started(t, cfg)
	if first.Adopted() || first.Unpinned() != "" {
		t.Errorf("the first: adopted %v, unpinned %q", first.Adopted(), first.Unpinned())
	}
	r := rig.LBAround(t, rig.Hits{}, first, cfg)
	r.Learn(t, 5, rig.ClientISN)
	opening := rig.Inward(rig.HuntPort, wire.SYN)
	opening.Src = netip.AddrPortFrom(rig.ClientAddr, 1)
	r.Accepted(t, 6, opening)
	mode, id := first.Mode(), attached(t)
	if _, err := lb.NewWith(cfg, rig.InVirtualTime); err == nil || !strings.Contains(err.Error(), "a running daemon") {
		t.Errorf("a second one beside the first: %v", err)
	}
	first.Die(t)
	if attached(t) != id || id == 0 {
		t.Fatalf("program %d became %d when its daemon died", id, attached(t))
	}

	svc := rig.Hunting(3, 12, rig.Members)
	svc.Servers = append(svc.Servers[9:], svc.Servers[2:7]...) // others first, some gone
	next := rig.LBConfig(rig.Service(81, topo.Stateless, 1, 3), svc)
	next.Pin = dir
	second, err := lb.NewWith(next, rig.InVirtualTime)
	if err != nil {
		t.Fatal(err)
	}
	if attached(t) != id {
		t.Error("the old program went before the new one came")
	}
	if err := second.Attach(); err != nil {
		t.Fatal(err)
	}
	if !second.Adopted() || second.Mode() != mode || attached(t) == id || attached(t) == 0 {
		t.Errorf("adopted %v, mode %q, want %q, program %d instead of %d", second.Adopted(), second.Mode(), mode, attached(t), id)
	}
	r = rig.LBAround(t, rig.Hits{}, second, next)
	p := rig.Inward(rig.HuntPort, wire.ACK)
	r.Send(t, p.Frame()).Is(t, "a flow of before", rig.XDPTX, rig.ToOne(p, 5, wire.AckStickiness, wire.Generation(rig.ClientISN)), "steer")
	opening.Flags, opening.Ack = wire.ACK, rig.ServerISN+1
	r.Send(t, opening.Frame()).Is(t, "an embryonic entry of before", rig.XDPTX,
		rig.ToOne(opening, 6, wire.AckStickiness, wire.Generation(rig.ClientISN)), "flow_established", "steer")
	if err := errors.Join(second.Detach(), second.Close()); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) || attached(t) != 0 {
		t.Errorf("after Close: %v, program %d", err, attached(t))
	}
}

// TestTakeoverResized: the flows of a table of another size go on, and the rest.
func TestTakeoverResized(t *testing.T) {
	rig.Enter(t)
	cfg := rig.LBConfig(rig.Hunting(2, 8, rig.Members))
	cfg.Pin = filepath.Join(rig.BPFFS(t), "lb")
	first := started(t, cfg)
	r := rig.LBAround(t, rig.Hits{}, first, cfg)
	r.Learn(t, 5, rig.ClientISN)
	number, _ := first.NumberOf(cfg.Services[0].Servers[5].Locator)
	first.Die(t)
	cfg.Flows.Entries *= 2
	second := started(t, cfg)
	defer second.Close()
	if lost := second.Forgotten(); lost != "" || !second.Adopted() {
		t.Errorf("adopted %v, forgotten: %q", second.Adopted(), lost)
	}
	r = rig.LBAround(t, rig.Hits{}, second, cfg)
	ack := rig.Inward(rig.HuntPort, wire.ACK)
	r.Send(t, ack.Frame()).Is(t, "a flow of before", rig.XDPTX, rig.ToOne(ack, 5, wire.AckStickiness, wire.Generation(rig.ClientISN)), "flow_from_before", "steer")
	if got, _ := second.NumberOf(cfg.Services[0].Servers[5].Locator); got != number {
		t.Errorf("server 5 has number %d, want %d", got, number)
	}
	second.Die(t)
	third := started(t, cfg)
	defer third.Close()
	if n, _ := rig.TableOf(t, third, cfg).Count(t); n != 1 {
		t.Errorf("the third finds %d flows", n)
	}
}

// TestTakeoverOtherLayout: entries with bits of another or an unknown meaning,
// are not read; the rest goes on, and the next daemon has this one's.
func TestTakeoverOtherLayout(t *testing.T) {
	for _, other := range []string{"", "layout-1"} {
		t.Run(other, func(t *testing.T) {
			rig.Enter(t)
			cfg := rig.LBConfig(rig.Hunting(2, 8, rig.Members))
			cfg.Pin = filepath.Join(rig.BPFFS(t), "lb")
			first := started(t, cfg)
			rig.LBAround(t, rig.Hits{}, first, cfg).Learn(t, 5, rig.ClientISN)
			first.Die(t)
			layout := first.PinnedAt(plane.Layout)
			if err := os.Remove(layout); err != nil {
				t.Fatal(err)
			}
			if other != "" {
				if err := os.Mkdir(first.PinnedAt(other), 0o700); err != nil {
					t.Fatal(err)
				}
			}
			second := started(t, cfg)
			defer second.Close()
			if want := "1 flows: the entries are of "; !strings.HasPrefix(second.Forgotten(), want) {
				t.Errorf("forgotten: %q, want %q", second.Forgotten(), want)
			}
			if n, _ := rig.TableOf(t, second, cfg).Count(t); n != 0 || !second.Adopted() {
				t.Errorf("adopted %v, and %d flows too", second.Adopted(), n)
			}
			rig.LBAround(t, rig.Hits{}, second, cfg).Learn(t, 4, rig.ClientISN)
			second.Die(t)
			third := started(t, cfg)
			defer third.Close()
			if n, _ := rig.TableOf(t, third, cfg).Count(t); n != 1 {
				t.Errorf("the third finds %d flows", n)
			}
			if _, err := os.Stat(first.PinnedAt("layout-1")); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("the other layout's name is still there: %v", err)
			}
		})
	}
}

// TestPinsElsewhere: nodes of one name in two network namespaces share the
// directory and nothing in it.
func TestPinsElsewhere(t *testing.T) {
	rig.Enter(t)
	cfg := rig.LBConfig(rig.Hunting(2, 8, rig.Members))
	cfg.Pin = filepath.Join(rig.BPFFS(t), "lb")
	l := started(t, cfg)
	defer l.Close()
	before := namesBelow(t, cfg.Pin)
	t.Run("elsewhere", func(t *testing.T) {
		rig.Enter(t)
		other := started(t, cfg)
		if other.Adopted() {
			t.Error("it adopted another namespace's maps")
		}
		if n := len(namesBelow(t, cfg.Pin)); n != 2*len(before) {
			t.Errorf("%d names, want twice %v", n, before)
		}
		if err := errors.Join(other.Detach(), other.Close()); err != nil {
			t.Error(err)
		}
	})
	if after := namesBelow(t, cfg.Pin); len(before) != 9 || len(after) != 9 {
		t.Errorf("%v became %v", before, after)
	}
	if attached(t) == 0 {
		t.Error("detached by a namesake")
	}
}

// TestUnpinned: without a directory for names all works, and the reason is logged.
func TestUnpinned(t *testing.T) {
	rig.Enter(t)
	for _, c := range []struct{ dir, why string }{
		{"", "no directory is configured"},
		{filepath.Join(t.TempDir(), "a", "b"), "is not in a BPF filesystem"},
	} {
		cfg := rig.LBConfig(rig.Hunting(2, 8, rig.Members))
		cfg.Pin = c.dir
		l := started(t, cfg)
		if !strings.Contains(l.Unpinned(), c.why) || l.Adopted() || attached(t) == 0 || l.Mode() != "native" {
			t.Errorf("%q: %q, adopted %v, %s", c.dir, l.Unpinned(), l.Adopted(), l.Mode())
		}
		r := rig.LBAround(t, rig.Hits{}, l, cfg)
		r.Learn(t, 5, rig.ClientISN)
		if err := l.Close(); err != nil || attached(t) != 0 {
			t.Errorf("close: %v, program %d", err, attached(t))
		}
		if c.dir != "" {
			if _, err := os.Stat(filepath.Dir(c.dir)); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("%s was made: %v", c.dir, err)
			}
		}
	}
}

// TestFailedStart: an LB that is loaded beside the programs of an earlier one and ends before
// it is attached leaves these the numbers of their servers.
func TestFailedStart(t *testing.T) {
	rig.Enter(t)
	cfg := rig.LBConfig(rig.Hunting(2, 8))
	cfg.Pin = filepath.Join(rig.BPFFS(t), "lb")
	first := started(t, cfg)
	defer first.Close()
	r := rig.LBAround(t, rig.Hits{}, first, cfg)
	p, opening := candidateAbove(t, r, 1, 1), candidateAbove(t, r, 1, 1000)
	old, other := r.List(t, 0, p.Flow())[0], r.List(t, 0, opening.Flow())[0]
	r.Accepted(t, old, p)
	id := attached(t)
	if err := first.Pins.Unlock(); err != nil { // as of a daemon that ended; its program goes on
		t.Fatal(err)
	}
	next := rig.LBConfig(rig.Hunting(2, 2))
	next.Pin = cfg.Pin
	successor, err := lb.NewWith(next, rig.InVirtualTime)
	if err != nil {
		t.Fatal(err)
	}
	if err := successor.Close(); err != nil {
		t.Fatal(err)
	}
	if attached(t) != id {
		t.Errorf("program %d is now %d", id, attached(t))
	}
	p.Flags, p.Ack = wire.ACK, rig.ServerISN+1
	r.Send(t, p.Frame()).Is(t, "its flow", rig.XDPTX, rig.ToOne(p, old, wire.AckStickiness, wire.Generation(rig.ClientISN)), "flow_established", "steer")
	r.Accepted(t, other, opening) // by a server that the successor does not have
}

// candidateAbove is a SYN, from this port or a later one, with a first candidate above number n.
func candidateAbove(t *testing.T, r *rig.LB, n int, port uint16) rig.Packet {
	t.Helper()
	p := rig.Inward(rig.HuntPort, wire.SYN)
	for p.Src = netip.AddrPortFrom(rig.ClientAddr, port); r.List(t, 0, p.Flow())[0] <= n; port++ {
		p.Src = netip.AddrPortFrom(rig.ClientAddr, port)
	}
	return p
}
