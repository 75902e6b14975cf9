package dataplane

import (
	"testing"
	"time"

	"github.com/cilium/ebpf"

	"proffer/policy"
	"proffer/topo"
)

// lbFlow and lbEmbryo are what an entry's word says (bpf/lb/flow.h).
type lbFlow struct {
	Seen                          time.Duration
	Closed                        uint32
	Server, Generation, Announced uint16
}

type lbEmbryo struct {
	Seen               time.Duration
	Expects            uint32
	Server, Generation uint16
}

// lbEntry is one entry of the table; Word 0: there is none.
type lbEntry struct{ Fingerprint, Word uint64 }

const (
	wordEstablished = 1 << 14
	unit            = 1 << 28 // of `seen`, in ns
	oneDisplaced    = 1 << 16
	displaced       = 15 * oneDisplaced
	away            = 1 << 20
	digestShift     = 21
)

func (e lbEntry) seen() time.Duration { return time.Duration(e.Fingerprint&0xffff) * unit }

func (e lbEntry) flow() (lbFlow, bool) {
	if e.Word&wordEstablished == 0 {
		return lbFlow{}, false
	}
	return lbFlow{
		Seen: e.seen(), Server: uint16(e.Word & 0x3fff), Generation: uint16(e.Word >> 16),
		Announced: uint16(e.Word >> 32), Closed: uint32(e.Word >> 48 & 7),
	}, true
}

func (e lbEntry) embryo() (lbEmbryo, bool) {
	if e.Word == 0 || e.Word&wordEstablished != 0 {
		return lbEmbryo{}, false
	}
	return lbEmbryo{
		Seen: e.seen(), Server: uint16(e.Word & 0x3fff), Generation: uint16(e.Word >> 16), Expects: uint32(e.Word >> 32),
	}, true
}

// lineTable reads and writes the table as a test wants it.
type lineTable struct {
	m   *ebpf.Map
	key policy.DigestKey
}

func tableOf(t testing.TB, l *LB, cfg *topo.LB) lineTable {
	t.Helper()
	return lineTable{l.objs.Flows, policy.NewDigestKey(cfg.CandidateKey)}
}

// places are the lines where a flow's entry may be, and its fingerprint (bpf/lb/lines.h).
func (lt lineTable) places(f policy.Flow) (fp uint64, lines [2]uint32) {
	hash := lt.key.Digest(f)
	primary, alternate := linesOf(hash, lt.m.MaxEntries())
	return fingerprintIn(hash), [2]uint32{primary, alternate}
}

// fingerprintIn and linesOf are a digest's fingerprint and the two lines where an entry may be.
func fingerprintIn(hash uint64) uint64 { return max(hash>>digestShift, 1) }

func linesOf(hash uint64, lines uint32) (primary, alternate uint32) {
	primary = uint32(uint64(uint32(hash<<(32-digestShift)|hash>>(32+digestShift))) * uint64(lines) >> 32)
	return primary, alternateOf(primary, fingerprintIn(hash), lines)
}

// alternateOf is the second line of an entry that may be in one.
func alternateOf(line uint32, fp uint64, lines uint32) uint32 {
	n := uint64(lines)
	sum := (fp * 0x9e3779b97f4a7c15 >> 32) * n >> 32
	return uint32((sum + n - uint64(line)) % n)
}

func (lt lineTable) line(t testing.TB, at uint32) (l lbLine) {
	t.Helper()
	if err := lt.m.Lookup(at, &l); err != nil {
		t.Fatal(err)
	}
	return l
}

// get finds the entry of a flow.
func (lt lineTable) get(t testing.TB, f policy.Flow) lbEntry {
	t.Helper()
	fp, lines := lt.places(f)
	for _, at := range lines {
		l := lt.line(t, at)
		for i := range l.Fingerprint {
			if l.Fingerprint[i]>>digestShift == fp && l.Word[i] != 0 {
				return lbEntry{l.Fingerprint[i] &^ displaced, l.Word[i]}
			}
		}
	}
	return lbEntry{}
}

// put makes the entry of a flow e: the one it has, or the first free one of its primary line.
func (lt lineTable) put(t testing.TB, f policy.Flow, e lbEntry) {
	t.Helper()
	fp, lines := lt.places(f)
	for _, wanted := range []uint64{fp, 0} {
		for _, at := range lines {
			l := lt.line(t, at)
			for i := range l.Fingerprint {
				if l.Fingerprint[i]>>digestShift != wanted {
					continue
				}
				if at != lines[0] && wanted == 0 {
					t.Fatalf("no slot for %v in its primary line", f)
				}
				l.Fingerprint[i], l.Word[i] = l.Fingerprint[i]&displaced|e.Fingerprint, e.Word
				if err := lt.m.Put(at, l); err != nil {
					t.Fatal(err)
				}
				return
			}
		}
		if e.Word == 0 {
			return
		}
	}
	t.Fatalf("no place for %v", f)
}

// count is how many entries there are, and how many of them are embryonic.
func (lt lineTable) count(t testing.TB) (all, embryonicCount int) {
	t.Helper()
	for at := range lt.m.MaxEntries() {
		for _, word := range lt.line(t, at).Word {
			if word != 0 {
				all++
				if word&wordEstablished == 0 {
					embryonicCount++
				}
			}
		}
	}
	return all, embryonicCount
}

// empty removes all entries.
func (lt lineTable) empty(t testing.TB) {
	t.Helper()
	keys, values := make([]uint32, lt.m.MaxEntries()), make([]lbLine, lt.m.MaxEntries())
	for i := range keys {
		keys[i] = uint32(i)
	}
	if _, err := lt.m.BatchUpdate(keys, values, nil); err != nil {
		t.Fatal(err)
	}
}
