package dataplane

import (
	"testing"

	"github.com/cilium/ebpf"

	"proffer/policy"
)

// connTable reads and writes an agent's table of flows.
type connTable struct {
	m   *ebpf.Map
	key policy.DigestKey
}

func connsOf(t testing.TB, a *Agent) *connTable {
	t.Helper()
	var key agentDigestKey
	if err := a.objs.ConnKey.Lookup(uint32(0), &key); err != nil {
		t.Fatal(err)
	}
	return &connTable{a.objs.Conns, policy.DigestKey{Odd: key.Odd, Word: key.Word}}
}

// Bits of a fingerprint (bpf/agent/conns.h).
const (
	connDigest       = ^uint64(noDigest)
	connInAlternate  = 1 << 17
	connOneDisplaced = 1 << 18
	connDisplaced    = 15 * connOneDisplaced
)

// lines returns a flow's primary and alternate line, and the digest in its fingerprint.
func (w *connTable) lines(f policy.Flow) (lines [2]uint32, fingerprint uint64) {
	hash, n := w.key.Digest(f), uint64(w.m.MaxEntries())
	primary := uint64(uint32(hash<<10|hash>>54)) * n >> 32
	fingerprint = hash & connDigest
	alternate := int64(fingerprint>>22*0x9e3779b97f4a7c15>>32*n>>32) - int64(primary)
	if alternate < 0 {
		alternate += int64(n)
	}
	return [2]uint32{uint32(primary), uint32(alternate)}, fingerprint
}

func (w *connTable) line(t testing.TB, at uint32) (s agentConnLine) {
	t.Helper()
	if err := w.m.Lookup(at, &s); err != nil {
		t.Fatal(err)
	}
	return s
}

func (w *connTable) write(t testing.TB, at uint32, s *agentConnLine) {
	t.Helper()
	if err := w.m.Put(at, s); err != nil {
		t.Fatal(err)
	}
}

// connEntry is what an agent knows of a flow.
type connEntry struct {
	conn        agentConn
	established bool
	known       bool
}

// find returns a flow's entry and its place.
func (w *connTable) find(t testing.TB, f policy.Flow) (line uint32, slot int, e connEntry) {
	t.Helper()
	lines, fingerprint := w.lines(f)
	for i, at := range lines {
		s := w.line(t, at)
		for k := range s.Fingerprint {
			if s.Fingerprint[k]&connDigest != fingerprint || s.Fingerprint[k]&connInAlternate != 0 != (i == 1) {
				continue
			}
			return at, k, connEntry{s.Slot[k].C, s.Fingerprint[k]&isEstablished != 0, true}
		}
	}
	return 0, 0, e
}

func (w *connTable) get(t testing.TB, f policy.Flow) connEntry {
	t.Helper()
	_, _, e := w.find(t, f)
	return e
}

// put writes a flow's entry in its slot, or one of its primary line, or frees its slot.
func (w *connTable) put(t testing.TB, f policy.Flow, e connEntry) {
	t.Helper()
	lines, fingerprint := w.lines(f)
	at, k, was := w.find(t, f)
	s := w.line(t, at)
	switch {
	case !was.known && !e.known:
		return
	case !was.known:
		at, k = lines[0], 0
		s = w.line(t, at)
		for s.Fingerprint[k] > noDigest {
			if k++; k == lineSlots {
				t.Fatalf("no slot for %v", f)
			}
		}
	case !e.known && s.Fingerprint[k]&connInAlternate != 0:
		primary := w.line(t, lines[0])
		primary.Fingerprint[0] -= connOneDisplaced
		w.write(t, lines[0], &primary)
	}
	left := s.Fingerprint[k] & connDisplaced
	if s.Fingerprint[k] = left; e.known {
		key, to := flowKey(f), &s.Slot[k]
		to.T.Client.In6U.U6Addr8, to.T.Vip.In6U.U6Addr8 = key.Client.In6U.U6Addr8, key.Vip.In6U.U6Addr8
		to.T.ClientPortBe, to.T.VipPortBe, to.T.Protocol = key.ClientPortBe, key.VipPortBe, f.Protocol.Number()
		to.C = e.conn
		s.Fingerprint[k] |= fingerprint | e.conn.SeenNs>>20&0xffff
		if e.established {
			s.Fingerprint[k] |= isEstablished
		}
		if at != lines[0] {
			s.Fingerprint[k] |= connInAlternate
		}
	}
	w.write(t, at, &s)
}

func (w *connTable) empty(t testing.TB) {
	t.Helper()
	for at := range w.m.MaxEntries() {
		w.write(t, at, &agentConnLine{})
	}
}

// count counts the embryonic and the established entries.
func (w *connTable) count(t testing.TB) (embryonic, established int) {
	t.Helper()
	all, err := dumpConns(w.m)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range all {
		established += int(e[0])
	}
	return len(all) - established, established
}
