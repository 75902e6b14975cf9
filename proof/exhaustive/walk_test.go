package exhaustive_test

import (
	"encoding/binary"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"

	"proffer/policy"
	"proffer/proof/fsm"
	"proffer/proof/rig"
)

// Every sequence of messages up to a depth runs through the real programs and
// through package handshake; each step must do the same to packet and state.
// PROFFER_DEPTH=6 looks further than `make test` does; so does, with several nodes
// and a network, PROFFER_SCHEDULES=100000, and elsewhere PROFFER_SEED=2.

func wantedDepth(t testing.TB) int {
	t.Helper()
	s := os.Getenv("PROFFER_DEPTH")
	if s == "" {
		return 5
	}
	n, err := strconv.Atoi(s)
	if err != nil || n < 1 {
		t.Fatalf("PROFFER_DEPTH=%q: want a number of messages, such as 6", s)
	}
	return n
}

// deepen walks all sequences of one message, then of two, and so on: the shortest
// counterexample comes first.
func deepen(t *testing.T, letters int, runs *int, walk func(depth int) int) {
	t.Helper()
	n, began, steps := wantedDepth(t), time.Now(), 0
	for d := 1; d <= n && !t.Failed(); d++ {
		steps = walk(d)
	}
	t.Logf("%d messages, all sequences of up to %d: %d steps, of which %d differed in what went before; %.2f minutes",
		letters, n, steps, *runs, time.Since(began).Minutes())
}

// slot is a flow's entry in a table of either kind, as it was read or restored last.
type slot[E comparable] struct {
	table interface {
		Get(testing.TB, policy.Flow) E
		Put(testing.TB, policy.Flow, E)
	}
	f     policy.Flow
	entry E
}

func (s *slot[E]) read(t testing.TB) { s.entry = s.table.Get(t, s.f) }

func (s *slot[E]) restore(t testing.TB, was E) {
	if s.entry != was {
		s.table.Put(t, s.f, was)
		s.entry = was
	}
}

// probe runs a program some million times: what it reads and writes beside the
// program are pages in memory.
type probe struct {
	prog     *ebpf.Program
	names    []string
	counters *ebpf.Memory
	before   []byte
	after    []byte
	clock    *ebpf.Memory
	buffer   [512]byte
}

// forProbes makes the programs' maps and clock ours.
func forProbes(spec *ebpf.CollectionSpec) error {
	spec.Maps["counters"].Type = ebpf.Array // one CPU at a time
	for _, name := range []string{"counters", "syns", "passed_on_offers"} {
		if m := spec.Maps[name]; m != nil {
			m.Flags |= rig.Mmapable
		}
	}
	if v := spec.Variables["virtual_sockets"]; v != nil {
		if err := v.Set(true); err != nil {
			return err
		}
	}
	return rig.InVirtualTime(spec)
}

func newProbe(t testing.TB, prog *ebpf.Program, names []string, counters *ebpf.Map) *probe {
	t.Helper()
	p := &probe{prog: prog, names: names, counters: rig.PagesOf(t, counters), clock: rig.PagesOf(t, rig.SectionOf(t, prog, ".bss"))}
	p.before, p.after = make([]byte, 8*len(names)), make([]byte, 8*len(names))
	return p
}

func writeAt(t testing.TB, m *ebpf.Memory, b []byte, at int) {
	if _, err := m.WriteAt(b, int64(at)); err != nil {
		t.Fatal(err)
	}
}

func readAt(t testing.TB, m *ebpf.Memory, b []byte, at int) {
	if _, err := m.ReadAt(b, int64(at)); err != nil {
		t.Fatal(err)
	}
}

func (p *probe) at(t testing.TB, now time.Duration) {
	writeAt(t, p.clock, binary.NativeEndian.AppendUint64(nil, uint64(now)), 0)
}

// send passes one frame through the program; valid until the next.
func (p *probe) send(t testing.TB, frame []byte) rig.Outcome {
	readAt(t, p.counters, p.before, 0)
	o := ebpf.RunOptions{Data: frame, DataOut: p.buffer[:]}
	action, err := p.prog.Run(&o)
	if err != nil {
		t.Fatalf("run %s on %d bytes: %v", p.prog, len(frame), err)
	}
	out := rig.Outcome{Action: action, Frame: o.DataOut}
	readAt(t, p.counters, p.after, 0)
	for i, name := range p.names {
		if p.before[8*i] != p.after[8*i] {
			out.Reasons = append(out.Reasons, name)
		}
	}
	return out
}

// digestSlot is where the LB remembers that a packet came before (bpf/lb/seen_before.h), and an agent
// that it passed on an offer (bpf/agent/passed_on.h).
func digestSlot(key policy.DigestKey, f policy.Flow, isn uint32) int {
	return int(policy.Mix(key.Digest(f)^uint64(isn)) % 65536)
}

// trail is the sequence that led somewhere, for a reader.
type trail []string

func (l trail) String() string { return strings.Join(l, ", ") }

// The two connections of a flow that its client opens, in turn.
const (
	isnA = rig.ClientISN
	isnB = rig.ClientISN + 1_000_000
)

// isnOf is a server's initial sequence number for a SYN.
func isnOf(server fsm.Node, clientISN uint32) uint32 {
	return clientISN*3 + uint32(server)*100_000
}

var hostPrefix = netip.PrefixFrom(rig.ClientAddr, 128)
