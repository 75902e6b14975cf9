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

// Bits of a mark (bpf/agent/conns.h).
const (
	digestOf   = ^uint64(noDigest)
	isAway     = 1 << 17
	oneStray   = 1 << 18
	manyStrays = 15 * oneStray
)

// sets are those where a flow's entry may be, its home first, and its mark without
// anything else.
func (w *connTable) sets(f policy.Flow) (sets [2]uint32, mark uint64) {
	hash, n := w.key.Digest(f), uint64(w.m.MaxEntries())
	home := uint64(uint32(hash<<10|hash>>54)) * n >> 32
	mark = hash & digestOf
	other := int64(mark>>22*0x9e3779b97f4a7c15>>32*n>>32) - int64(home)
	if other < 0 {
		other += int64(n)
	}
	return [2]uint32{uint32(home), uint32(other)}, mark
}

func (w *connTable) set(t testing.TB, at uint32) (s agentConnSet) {
	t.Helper()
	if err := w.m.Lookup(at, &s); err != nil {
		t.Fatal(err)
	}
	return s
}

func (w *connTable) write(t testing.TB, at uint32, s *agentConnSet) {
	t.Helper()
	if err := w.m.Put(at, s); err != nil {
		t.Fatal(err)
	}
}

// connEntry is what an agent knows of a flow.
type connEntry struct {
	conn   agentConn
	proved bool
	known  bool
}

// find says where a flow's entry is.
func (w *connTable) find(t testing.TB, f policy.Flow) (set uint32, place int, e connEntry) {
	t.Helper()
	sets, mark := w.sets(f)
	for i, at := range sets {
		s := w.set(t, at)
		for k := range s.Mark {
			if s.Mark[k]&digestOf != mark || s.Mark[k]&isAway != 0 != (i == 1) {
				continue
			}
			return at, k, connEntry{s.Place[k].C, s.Mark[k]&isProved != 0, true}
		}
	}
	return 0, 0, e
}

func (w *connTable) get(t testing.TB, f policy.Flow) connEntry {
	t.Helper()
	_, _, e := w.find(t, f)
	return e
}

// put makes a flow's entry this one: where it is, or at home; or takes it away.
func (w *connTable) put(t testing.TB, f policy.Flow, e connEntry) {
	t.Helper()
	sets, mark := w.sets(f)
	at, k, was := w.find(t, f)
	s := w.set(t, at)
	switch {
	case !was.known && !e.known:
		return
	case !was.known:
		at, k = sets[0], 0
		s = w.set(t, at)
		for s.Mark[k] > noDigest {
			if k++; k == setPlaces {
				t.Fatalf("no place for %v", f)
			}
		}
	case !e.known && s.Mark[k]&isAway != 0:
		home := w.set(t, sets[0])
		home.Mark[0] -= oneStray
		w.write(t, sets[0], &home)
	}
	left := s.Mark[k] & manyStrays
	if s.Mark[k] = left; e.known {
		key, to := flowKey(f), &s.Place[k]
		to.T.Client.In6U.U6Addr8, to.T.Vip.In6U.U6Addr8 = key.Client.In6U.U6Addr8, key.Vip.In6U.U6Addr8
		to.T.ClientPortBe, to.T.VipPortBe, to.T.Protocol = key.ClientPortBe, key.VipPortBe, f.Protocol.Number()
		to.C = e.conn
		s.Mark[k] |= mark | e.conn.SeenNs>>20&0xffff
		if e.proved {
			s.Mark[k] |= isProved
		}
		if at != sets[0] {
			s.Mark[k] |= isAway
		}
	}
	w.write(t, at, &s)
}

func (w *connTable) empty(t testing.TB) {
	t.Helper()
	for at := range w.m.MaxEntries() {
		w.write(t, at, &agentConnSet{})
	}
}

// count counts the openings and the flows whose clients have proved to be there.
func (w *connTable) count(t testing.TB) (openings, proved int) {
	t.Helper()
	all, err := dumpConns(w.m)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range all {
		proved += int(e[0])
	}
	return len(all) - proved, proved
}
