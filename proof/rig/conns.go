package rig

import (
	"errors"
	"testing"
	"time"

	"github.com/cilium/ebpf"

	"proffer/dataplane/agent"
	"proffer/dataplane/objects"
	"proffer/policy"
)

// ConnTable reads and writes an agent's table of flows.
type ConnTable struct {
	M     *ebpf.Map
	hints *ebpf.Map
	Key   policy.DigestKey
}

func ConnsOf(t testing.TB, a *agent.Agent) *ConnTable {
	t.Helper()
	var key objects.AgentDigestKey
	if err := a.Objects().ConnKey.Lookup(uint32(0), &key); err != nil {
		t.Fatal(err)
	}
	return &ConnTable{a.Objects().Conns, a.Objects().ConnHints, policy.DigestKey{Odd: key.Odd, Word: key.Word}}
}

// Bits of a fingerprint (bpf/agent/flow_table.h).
const (
	ConnDigest       = ^uint64(objects.NoDigest)
	ConnInAlternate  = 1 << 20
	ConnOneDisplaced = OneDisplaced
	ConnDisplaced    = 15 * ConnOneDisplaced
)

// Lines returns a flow's primary and alternate line, and the digest in its fingerprint.
func (w *ConnTable) Lines(f policy.Flow) (lines [2]uint32, fingerprint uint64) {
	return ConnLinesOf(w.Key.Digest(f), w.M.MaxEntries())
}

// ConnLinesOf is Lines of a digest, in a table of so many lines.
func ConnLinesOf(hash uint64, among uint32) (lines [2]uint32, fingerprint uint64) {
	n := uint64(among)
	primary := uint64(uint32(hash<<10|hash>>54)) * n >> 32
	fingerprint = hash & ConnDigest
	alternate := int64(fingerprint>>22*0x9e3779b97f4a7c15>>32*n>>32) - int64(primary)
	if alternate < 0 {
		alternate += int64(n)
	}
	return [2]uint32{uint32(primary), uint32(alternate)}, fingerprint
}

func (w *ConnTable) Line(t testing.TB, at uint32) (s objects.AgentConnLine) {
	t.Helper()
	if err := w.M.Lookup(at, &s); err != nil {
		t.Fatal(err)
	}
	return s
}

// Write writes a line, and its hints.
func (w *ConnTable) Write(t testing.TB, at uint32, s *objects.AgentConnLine) {
	t.Helper()
	if err := errors.Join(w.M.Put(at, s), w.hints.Put(at, connHints(s))); err != nil {
		t.Fatal(err)
	}
}

// connHints are a line's hints: none of a free slot.
func connHints(s *objects.AgentConnLine) (hints [objects.LineSlots]byte) {
	for k, fp := range s.Fingerprint {
		hints[k] = HintOf(fp)
	}
	return hints
}

// Hinted fails the test if a slot at rest has not its hint.
func (w *ConnTable) Hinted(t testing.TB) {
	t.Helper()
	for at := range w.M.MaxEntries() {
		var hints [objects.LineSlots]byte
		if err := w.hints.Lookup(at, &hints); err != nil {
			t.Fatal(err)
		}
		if line := w.Line(t, at); hints != connHints(&line) {
			t.Errorf("line %d has fingerprints %x and hints %x", at, line.Fingerprint, hints)
		}
	}
}

// ConnEntry is an agent's state of a flow.
type ConnEntry struct {
	Conn        objects.AgentConn
	Established bool
	Known       bool
}

// Find returns a flow's entry and its slot.
func (w *ConnTable) Find(t testing.TB, f policy.Flow) (line uint32, slot int, e ConnEntry) {
	t.Helper()
	lines, fingerprint := w.Lines(f)
	for i, at := range lines {
		s := w.Line(t, at)
		for k := range s.Fingerprint {
			if s.Fingerprint[k]&ConnDigest != fingerprint || s.Fingerprint[k]&ConnInAlternate != 0 != (i == 1) {
				continue
			}
			return at, k, ConnEntry{s.Slot[k], s.Fingerprint[k]&objects.IsEstablished != 0, true}
		}
	}
	return 0, 0, e
}

func (w *ConnTable) Get(t testing.TB, f policy.Flow) ConnEntry {
	t.Helper()
	_, _, e := w.Find(t, f)
	return e
}

// ConnOf is an entry of flow f, with the rest of c.
func ConnOf(f policy.Flow, c objects.AgentConn) objects.AgentConn {
	key := flowKey(f)
	c.Client.In6U.U6Addr8, c.Vip.In6U.U6Addr8 = key.Client.In6U.U6Addr8, key.Vip.In6U.U6Addr8
	c.ClientPortBe, c.VipPortBe, c.Protocol = key.ClientPortBe, key.VipPortBe, f.Protocol.Number()
	return c
}

// ConnUnit is the resolution of an entry's age.
const ConnUnit = time.Duration(1) << objects.SeenShift

// Seen is a time as entries have it.
func Seen(at time.Duration) uint32 { return uint32(at / ConnUnit) }

// Put writes a flow's entry in its slot, or one of its primary line, or frees its slot.
func (w *ConnTable) Put(t testing.TB, f policy.Flow, e ConnEntry) {
	t.Helper()
	lines, fingerprint := w.Lines(f)
	at, k, was := w.Find(t, f)
	s := w.Line(t, at)
	switch {
	case !was.Known && !e.Known:
		return
	case !was.Known:
		at, k = lines[0], 0
		s = w.Line(t, at)
		for s.Fingerprint[k] > objects.NoDigest {
			if k++; k == objects.LineSlots {
				t.Fatalf("no slot for %v", f)
			}
		}
	case !e.Known && s.Fingerprint[k]&ConnInAlternate != 0:
		primary := w.Line(t, lines[0])
		primary.Fingerprint[0] -= ConnOneDisplaced
		w.Write(t, lines[0], &primary)
	}
	left := s.Fingerprint[k] & ConnDisplaced
	if s.Fingerprint[k] = left; e.Known {
		s.Slot[k] = ConnOf(f, e.Conn)
		s.Fingerprint[k] |= fingerprint | uint64(e.Conn.Seen&0xffff)
		if e.Established {
			s.Fingerprint[k] |= objects.IsEstablished
		}
		if at != lines[0] {
			s.Fingerprint[k] |= ConnInAlternate
		}
	}
	w.Write(t, at, &s)
}

func (w *ConnTable) Empty(t testing.TB) {
	t.Helper()
	for at := range w.M.MaxEntries() {
		w.Write(t, at, &objects.AgentConnLine{})
	}
}

// Count counts the embryonic and the established entries.
func (w *ConnTable) Count(t testing.TB) (embryonic, established int) {
	t.Helper()
	all, err := objects.Conns(w.M)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range all {
		established += int(e[0])
	}
	return len(all) - established, established
}
