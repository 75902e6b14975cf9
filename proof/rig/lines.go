package rig

import (
	"errors"
	"math/rand/v2"
	"testing"
	"time"
	"unsafe"

	"github.com/cilium/ebpf"

	"proffer/dataplane/lb"
	"proffer/dataplane/objects"
	"proffer/policy"
	"proffer/topo"
)

// Flow and Embryonic are the words of an entry (bpf/lb/flow.h).
type Flow struct {
	Seen                          time.Duration
	Closed                        uint32
	Server, Generation, Announced uint16
}

type Embryonic struct {
	Seen               time.Duration
	Expects            uint32
	Server, Generation uint16
}

// Entry is an entry of the table; Word 0: there is none.
type Entry struct{ Fingerprint, Word uint64 }

const (
	WordEstablished = 1 << 14
	WordMoving      = 1 << 15
	Unit            = 1 << 28 // of `seen`, in ns
	OneDisplaced    = 1 << 16
	Displaced       = 15 * OneDisplaced
	Away            = 1 << 20
	DigestShift     = 21
)

func (e Entry) seen() time.Duration { return time.Duration(e.Fingerprint&0xffff) * Unit }

func (e Entry) Flow() (Flow, bool) {
	if e.Word&WordEstablished == 0 {
		return Flow{}, false
	}
	return Flow{
		Seen: e.seen(), Server: uint16(e.Word & 0x3fff), Generation: uint16(e.Word >> 16),
		Announced: uint16(e.Word >> 32), Closed: uint32(e.Word >> 48 & 7),
	}, true
}

func (e Entry) Embryonic() (Embryonic, bool) {
	if e.Word == 0 || e.Word&WordEstablished != 0 {
		return Embryonic{}, false
	}
	return Embryonic{
		Seen: e.seen(), Server: uint16(e.Word & 0x3fff), Generation: uint16(e.Word >> 16), Expects: uint32(e.Word >> 32),
	}, true
}

// LineTable reads and writes the table as a test wants it.
type LineTable struct {
	m   *ebpf.Map
	Key policy.DigestKey
}

func TableOf(t testing.TB, l *lb.LB, cfg *topo.LB) LineTable {
	t.Helper()
	return LineTable{l.Objects().Flows, policy.NewDigestKey(cfg.CandidateKey)}
}

// LinesOf returns the lines where a flow's entry may be, and its fingerprint
// (bpf/lb/flow_table.h).
func (lt LineTable) LinesOf(f policy.Flow) (fp uint64, lines [2]uint32) {
	hash := lt.Key.Digest(f)
	primary, alternate := LinesOf(hash, lt.lines())
	return FingerprintIn(hash), [2]uint32{primary, alternate}
}

// FingerprintIn and linesOf are a digest's fingerprint and the two lines where an entry may be.
func FingerprintIn(hash uint64) uint64 { return max(hash>>DigestShift, 1) }

func LinesOf(hash uint64, lines uint32) (primary, alternate uint32) {
	primary = uint32(uint64(uint32(hash<<(32-DigestShift)|hash>>(32+DigestShift))) * uint64(lines) >> 32)
	return primary, alternateOf(primary, FingerprintIn(hash), lines)
}

// alternateOf is the second line of an entry that may be in one.
func alternateOf(line uint32, fp uint64, lines uint32) uint32 {
	n := uint64(lines)
	sum := (fp * 0x9e3779b97f4a7c15 >> 32) * n >> 32
	return uint32((sum + n - uint64(line)) % n)
}

func (lt LineTable) line(t testing.TB, at uint32) (l objects.LBLine) {
	t.Helper()
	if err := lt.m.Lookup(at, &l); err != nil {
		t.Fatal(err)
	}
	return l
}

func (lt LineTable) lines() uint32 { return objects.TableLines(lt.m.MaxEntries()) }

// hints returns the hints of a line's slots, their element, and its number.
func (lt LineTable) hints(t testing.TB, at uint32) (of []byte, element []byte, number uint32) {
	t.Helper()
	number = lt.lines() + at/objects.HintedLines
	element, err := lt.m.LookupBytes(number)
	if err != nil {
		t.Fatal(err)
	}
	return element[at%objects.HintedLines*4:][:4], element, number
}

// HintOf is the hint of a fingerprint; 0 of a free slot (bpf/table/hints.h).
func HintOf(fp uint64) byte {
	if fp < 1<<DigestShift {
		return 0
	}
	return max(1, byte(fp>>objects.HintShift))
}

// Get finds the entry of a flow.
func (lt LineTable) Get(t testing.TB, f policy.Flow) Entry {
	t.Helper()
	fp, lines := lt.LinesOf(f)
	for _, at := range lines {
		l := lt.line(t, at)
		for i := range l.Fingerprint {
			if l.Fingerprint[i]>>DigestShift == fp && l.Word[i] != 0 {
				return Entry{l.Fingerprint[i] &^ Displaced, l.Word[i]}
			}
		}
	}
	return Entry{}
}

// Put makes the entry of a flow e: the one it has, or the first free one of its primary line.
func (lt LineTable) Put(t testing.TB, f policy.Flow, e Entry) {
	t.Helper()
	fp, lines := lt.LinesOf(f)
	for _, wanted := range []uint64{fp, 0} {
		for _, at := range lines {
			l := lt.line(t, at)
			for i := range l.Fingerprint {
				if l.Fingerprint[i]>>DigestShift != wanted {
					continue
				}
				if at != lines[0] && wanted == 0 {
					t.Fatalf("no slot for %v in its primary line", f)
				}
				l.Fingerprint[i], l.Word[i] = l.Fingerprint[i]&Displaced|e.Fingerprint, e.Word
				of, element, number := lt.hints(t, at)
				of[i] = HintOf(l.Fingerprint[i])
				if err := errors.Join(lt.m.Put(at, l), lt.m.Put(number, element)); err != nil {
					t.Fatal(err)
				}
				return
			}
		}
		if e.Word == 0 {
			return
		}
	}
	t.Fatalf("no slot for %v", f)
}

// Count is how many entries there are, and how many of them are embryonic.
func (lt LineTable) Count(t testing.TB) (all, embryonicCount int) {
	t.Helper()
	for at := range lt.lines() {
		for _, word := range lt.line(t, at).Word {
			if word != 0 {
				all++
				if word&WordEstablished == 0 {
					embryonicCount++
				}
			}
		}
	}
	return all, embryonicCount
}

// Words returns the words of all entries.
func (lt LineTable) Words(t testing.TB) (all []uint64) {
	t.Helper()
	for at := range lt.lines() {
		for _, word := range lt.line(t, at).Word {
			if word != 0 {
				all = append(all, word)
			}
		}
	}
	return all
}

// Empty removes all entries, and their hints.
func (lt LineTable) Empty(t testing.TB) {
	t.Helper()
	lt.write(t, func(*objects.LBLine) {})
}

// Fill fills all slots with established flows of other services, in which a packet came at
// that time.
func (lt LineTable) Fill(t testing.TB, now time.Duration) {
	t.Helper()
	rng := rand.New(rand.NewPCG(4, 4))
	lt.write(t, func(l *objects.LBLine) {
		for i := range l.Word {
			l.Fingerprint[i] = rng.Uint64()>>DigestShift<<DigestShift | uint64(uint16(now/Unit))
			l.Word[i] = rng.Uint64()>>54<<53 | WordEstablished
		}
	})
}

// write writes all lines, and their hints.
func (lt LineTable) write(t testing.TB, fill func(*objects.LBLine)) {
	t.Helper()
	keys, values := make([]uint32, lt.m.MaxEntries()), make([]objects.LBLine, lt.m.MaxEntries())
	for i := range keys {
		keys[i] = uint32(i)
	}
	for i := range int(lt.lines()) {
		fill(&values[i])
		element := &values[int(lt.lines())+i/objects.HintedLines]
		hints := (*[objects.LineBytes]byte)(unsafe.Pointer(element))[i%objects.HintedLines*objects.LineEntries:]
		for k, fp := range values[i].Fingerprint {
			hints[k] = HintOf(fp)
		}
	}
	if _, err := lt.m.BatchUpdate(keys, values, nil); err != nil {
		t.Fatal(err)
	}
}

func WordOf(flow int) uint64 { return uint64(flow) | WordEstablished | uint64(70+flow)<<16 }
