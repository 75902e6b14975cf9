package dataplane

import (
	"slices"
	"testing"

	"github.com/cilium/ebpf"

	"proffer/policy"
)

// waitTable reads and writes the agent's table of flows that wait.
type waitTable struct {
	m   *ebpf.Map
	key policy.DigestKey
}

func waitsOf(t testing.TB, a *Agent) *waitTable {
	t.Helper()
	var key agentDigestKey
	if err := a.objs.WaitKey.Lookup(uint32(0), &key); err != nil {
		t.Fatal(err)
	}
	return &waitTable{a.objs.Waits, policy.DigestKey{Odd: key.Odd, Word: key.Word}}
}

// place is the set where a flow's entry may be, and its mark without a date
// (bpf/waits.h).
func (w *waitTable) place(f policy.Flow) (set uint32, mark uint64) {
	hash := w.key.Digest(f)
	set = uint32(uint64(uint32(hash<<16|hash>>48)) * uint64(w.m.MaxEntries()) >> 32)
	return set, hash &^ 0xffff
}

func (w *waitTable) set(t testing.TB, at uint32) (s agentWaitSet) {
	t.Helper()
	if err := w.m.Lookup(at, &s); err != nil {
		t.Fatal(err)
	}
	return s
}

func (w *waitTable) write(t testing.TB, at uint32, s *agentWaitSet) {
	t.Helper()
	if err := w.m.Put(at, s); err != nil {
		t.Fatal(err)
	}
}

// get finds the entry of a flow.
func (w *waitTable) get(t testing.TB, f policy.Flow) (c agentConn, known bool) {
	t.Helper()
	at, mark := w.place(f)
	s := w.set(t, at)
	for i := range s.Mark {
		if s.Mark[i]&^0xffff == mark {
			return s.Place[i].C, true
		}
	}
	return c, false
}

// put writes the entry of a flow: where it is, or where nobody is; or takes it away.
func (w *waitTable) put(t testing.TB, f policy.Flow, c agentConn, known bool) {
	t.Helper()
	at, mark := w.place(f)
	s := w.set(t, at)
	is := func(want uint64) int {
		return slices.IndexFunc(s.Mark[:], func(mark uint64) bool { return mark&^0xffff == want })
	}
	i := is(mark)
	switch {
	case i < 0 && !known:
		return
	case i < 0:
		if i = is(0); i < 0 {
			t.Fatalf("no place for %v", f)
		}
		fallthrough
	case known:
		key, to := flowKey(f), &s.Place[i]
		to.T.Client.In6U.U6Addr8, to.T.Vip.In6U.U6Addr8 = key.Client.In6U.U6Addr8, key.Vip.In6U.U6Addr8
		to.T.ClientPortBe, to.T.VipPortBe, to.T.Protocol = key.ClientPortBe, key.VipPortBe, key.Protocol
		to.C = c
		s.Mark[i] = mark | c.SeenNs>>20&0xffff
	default:
		s.Mark[i] = 0
	}
	w.write(t, at, &s)
}

func (w *waitTable) empty(t testing.TB) {
	t.Helper()
	for at := range w.m.MaxEntries() {
		w.write(t, at, &agentWaitSet{})
	}
}

func (w *waitTable) count(t testing.TB) int {
	t.Helper()
	all, err := dumpWaits(w.m)
	if err != nil {
		t.Fatal(err)
	}
	return len(all)
}

// waitSlot is a flow's entry as the exhaustive tests save and restore it.
type waitSlot struct {
	*waitTable
	f     policy.Flow
	value agentConn
	known bool
}

func (s *waitSlot) read(t testing.TB) { s.value, s.known = s.get(t, s.f) }

func (s *waitSlot) restore(t testing.TB, was waitSlot) {
	if s.known != was.known || s.value != was.value {
		s.put(t, s.f, was.value, was.known)
		s.value, s.known = was.value, was.known
	}
}
