package lb_test

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"proffer/dataplane/internal/plane"
	"proffer/dataplane/lb"
	"proffer/dataplane/objects"
	"proffer/proof/rig"
	"proffer/wire"
)

// stored is the table of an LB of an earlier layout, as its programs left it: testdata/layout-N.json is by
// the last version but one of that layout. Version 7 was never published.
type stored struct {
	layout   int
	Elements uint32
	Numbers  []uint32 // of servers 0 to 7
	Flows    []storedFlow
	Table    []byte // gzip
}

type storedFlow struct {
	Kind         string // hunt, tcp, tcp4, udp
	Port, Server int
}

func storedTables(t *testing.T) (all []stored) {
	t.Helper()
	paths, err := filepath.Glob("testdata/layout-*.json")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		var s stored
		number := strings.TrimSuffix(strings.TrimPrefix(filepath.Base(path), "layout-"), ".json")
		if s.layout, err = strconv.Atoi(number); err == nil {
			err = json.Unmarshal(text, &s)
		}
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, s)
	}
	return all
}

// pin puts the table in the place of a dead LB's.
func (s *stored) pin(t *testing.T, dead *lb.LB) {
	t.Helper()
	z, err := gzip.NewReader(bytes.NewReader(s.Table))
	if err != nil {
		t.Fatal(err)
	}
	data, err := io.ReadAll(z)
	if err != nil || len(data) != int(s.Elements)*objects.LineBytes {
		t.Fatalf("%d bytes, %v", len(data), err)
	}
	flows := pinnedMap(t, dead, "flows", &ebpf.MapSpec{Type: ebpf.Array, KeySize: 4, ValueSize: uint32(objects.LineBytes), MaxEntries: s.Elements, Flags: unix.BPF_F_MMAPABLE})
	for i := range s.Elements {
		if err := flows.Put(i, data[int(i)*objects.LineBytes:][:objects.LineBytes]); err != nil {
			t.Fatal(err)
		}
	}
	numbers := pinnedMap(t, dead, "server_by_locator", &ebpf.MapSpec{Type: ebpf.Hash, KeySize: 8, ValueSize: 4, MaxEntries: 1 << 14, Flags: unix.BPF_F_NO_PREALLOC})
	for i, number := range s.Numbers {
		if err := numbers.Put(objects.LocatorBits(rig.ServerLocator(i)), number); err != nil {
			t.Fatal(err)
		}
	}
	err = errors.Join(os.Remove(dead.PinnedAt(plane.Layout)), os.Mkdir(dead.PinnedAt(fmt.Sprint("layout-", s.layout)), 0o700), os.Remove(dead.PinnedAt("tallies")))
	if err != nil {
		t.Fatal(err)
	}
}

func pinnedMap(t *testing.T, dead *lb.LB, name string, spec *ebpf.MapSpec) *ebpf.Map {
	t.Helper()
	m, err := ebpf.NewMap(spec)
	if err == nil {
		err = errors.Join(os.Remove(dead.PinnedAt(name)), m.Pin(dead.PinnedAt(name)))
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	return m
}

// wantFlow sends a packet of a flow, which must reach its server.
func (f storedFlow) wantFlow(t *testing.T, r *rig.LB, label string, reasons ...string) {
	t.Helper()
	src := func(a netip.Addr) netip.AddrPort { return netip.AddrPortFrom(a, uint16(f.Port)) }
	p, function, generation := client(0, wire.ACK), wire.Deliver, uint16(0)
	switch f.Kind {
	case "hunt":
		p, function, generation = rig.Inward(rig.HuntPort, wire.ACK), wire.AckStickiness, wire.Generation(rig.ClientISN)
	case "udp":
		p = rig.Datagram(81, "some")
	case "tcp4":
		p.Dst = netip.AddrPortFrom(rig.Vip4, 81)
	}
	if p.Src = src(rig.ClientAddr); f.Kind == "tcp4" {
		p.Src = src(rig.Client4)
	}
	r.Send(t, p.Frame()).Is(t, fmt.Sprintf("%s, %s of port %d", label, f.Kind, f.Port), rig.XDPTX, rig.ToOne(p, f.Server, function, generation), reasons...)
}

// TestEarlierLayouts: the flows of an LB of any layout since the second, in a table of the same size or
// another, are found at their servers, although the pool is another, and the table of before goes
// when it is empty.
func TestEarlierLayouts(t *testing.T) {
	tables := storedTables(t)
	if len(tables) != 6 {
		t.Fatalf("%d stored tables, want 6", len(tables))
	}
	for _, s := range tables {
		for _, entries := range []int{1024, 3000, 64} {
			t.Run(fmt.Sprintf("%d, %d entries", s.layout, entries), func(t *testing.T) {
				rig.Enter(t)
				cfg := rig.LBConfig(kept(8, drained(0, 1, 2, 3, 4, 5, 6)), kept(8, rig.OverUDP, drained(0, 1, 2, 3, 4, 5, 6)),
					kept(8, rig.Over4, drained(0, 1, 2, 3, 4, 5, 6)), rig.Hunting(2, 8))
				cfg.Pin = filepath.Join(rig.BPFFS(t), "lb")
				cfg.Flows.Entries = 4 * 1024
				first := started(t, cfg)
				first.Die(t)
				s.pin(t, first)
				cfg.Flows.Entries = entries
				for i := range cfg.Services { // else the servers have the numbers of before without a look
					slices.Reverse(cfg.Services[i].Servers)
				}
				second := started(t, cfg)
				defer second.Close()
				if lost := second.Forgotten(); lost != "" {
					t.Errorf("forgotten: %s", lost)
				}
				r := rig.LBAround(t, rig.Hits{}, second, cfg)
				r.At(t, rig.Start)
				for i, f := range s.Flows {
					if entries < 1024 && i%4 > 0 {
						continue // there is no room for all
					}
					reasons := []string{"flow_from_before", "steer"}
					if s.layout == 8 && entries == 1024 {
						reasons = reasons[1:]
					}
					f.wantFlow(t, r, "first packet", reasons...)
					f.wantFlow(t, r, "second packet", "steer")
				}
				wantNoneBefore(t, r, second, entries < 1024)
			})
		}
	}
}

// wantNoneBefore sweeps until the table of before is gone. Flows that sent nothing stay there.
func wantNoneBefore(t *testing.T, r *rig.LB, l *lb.LB, some bool) {
	t.Helper()
	sweep := func() {
		for range plane.SweepTurns {
			if _, err := r.SweepTurn(); err != nil {
				t.Fatal(err)
			}
		}
	}
	sweep()
	pins, err := filepath.Glob(l.PinnedAt("before-*"))
	if (l.Before() > 0) != some || (len(pins) > 0) != some || err != nil {
		t.Errorf("%d flows in the table of before, pinned as %v (%v), want some: %v", l.Before(), pins, err, some)
	}
	r.At(t, rig.Start+l.FlowTable.IdleTCP()+2*rig.Unit)
	sweep()
	if pins, _ := filepath.Glob(l.PinnedAt("before-*")); l.Before() != 0 || len(pins) != 0 {
		t.Errorf("%d flows of before after their time, pinned as %v", l.Before(), pins)
	}
}

// TestResizedLearned: flows that count at their servers count there once, through tables of three sizes and
// back to an earlier one with flows that have not all moved. A third size waits until the first is empty.
func TestResizedLearned(t *testing.T) {
	rig.Enter(t)
	const flows = 60
	cfg := rig.LBConfig(learned(5))
	cfg.Pin = filepath.Join(rig.BPFFS(t), "lb")
	cfg.Flows.Entries = 1024
	r := successor(t, cfg)
	server := [flows]int{}
	for i := range flows {
		server[i] = sendTo(t, r, "SYN", client(i, wire.SYN), -1, "deliver", "flow_begun")
		sendTo(t, r, "ACK", client(i, wire.ACK), server[i], "flow_established", "steer")
	}
	for step, entries := range []int{4096, 1024, 4096, 300} {
		r.Die(t)
		cfg.Flows.Entries = entries
		r = successor(t, cfg)
		if _, err := r.Recount(); err != nil || r.Forgotten() != "" {
			t.Fatalf("step %d: %v, forgotten %q", step, err, r.Forgotten())
		}
		if waits := len(r.Advice()) > 0; waits != (step == 3) {
			t.Errorf("step %d: advice %q", step, r.Advice())
		}
		count := uint32(0)
		for _, s := range seats(t, r, 0) {
			count += s.Established + s.Embryonic
		}
		if count != flows {
			t.Errorf("step %d: %d flows count, want %d", step, count, flows)
		}
		for i := step; i < flows; i += 2 { // the others stay where they are
			if got := serverIn(r.Send(t, client(i, wire.ACK).Frame()).Frame); got != server[i] {
				t.Errorf("step %d: flow %d at server %d, want %d", step, i, got, server[i])
			}
		}
	}
}

// testFromBefore: a packet that is too long for a frame, one of an open connection and one that ends it find
// the entry of a table of another size, and a new flow has none there.
func testFromBefore(t *testing.T, seen rig.Hits) {
	rig.Enter(t)
	cfg := rig.LBConfig(kept(8))
	cfg.Pin = filepath.Join(rig.BPFFS(t), "lb")
	first := started(t, cfg)
	r := rig.LBAround(t, seen, first, cfg)
	server := []int{begin(t, r, 0), begin(t, r, 1), begin(t, r, 2), begin(t, r, 4)}
	first.Die(t)
	pin := cfg.Pin
	cfg = rig.LBConfig(kept(8, drained(server...)))
	cfg.Pin, cfg.Flows.Entries = pin, 100
	second := started(t, cfg)
	defer second.Close()
	r = rig.LBAround(t, seen, second, cfg)
	super := rig.Sized(client(0, wire.ACK), 20000).Frame()
	r.Send(t, super).Is(t, "a super-packet", rig.XDPPass, nil, "flow_from_before", "pass_long")
	wantAt(t, r, "after it", client(0, wire.ACK), server[0], "steer")
	wantAt(t, r, "data", client(1, wire.ACK|wire.PSH), server[1], "flow_from_before", "steer")
	wantAt(t, r, "FIN", client(2, wire.FIN|wire.ACK), server[2], "flow_from_before", "steer")
	options := r.Send(t, rig.WithExtension(client(4, wire.ACK).Frame(), 60, 0))
	options.Is(t, "behind options", rig.XDPTX, nil, "flow_from_before", "steer")
	if want := rig.ToOne(client(4, wire.ACK), server[3], wire.Deliver, 0); !bytes.Equal(options.Frame[rig.AtDst:rig.AtDst+16], want[rig.AtDst:rig.AtDst+16]) {
		t.Errorf("behind options: %x, want the address of %x", options.Frame, want)
	}
	begin(t, r, 3)
}
