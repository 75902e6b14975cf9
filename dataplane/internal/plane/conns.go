package plane

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/cilium/ebpf"

	"proffer/dataplane/objects"
)

// Up to layoutOfMarks established entries had another bit in their fingerprints, and up to layoutOfTuples the
// flow stood before its entry, in 80 bytes.
const (
	layoutOfMarks  = 2
	layoutOfTuples = 5
	marked         = 1 << 16
)

// ConnsBefore is an earlier agent's table of flows, of another size or layout than this agent's.
type ConnsBefore struct {
	conns  *ebpf.Map
	layout int
	counts bool // its loads are this agent's, too
}

// AdoptConns returns the pinned table of flows of an agent, which has another size or layout, for its
// entries to be read; or nil. They count in the loads if these are adopted.
func (p *Pins) AdoptConns(loads bool) *ConnsBefore {
	if p.link == nil {
		return nil
	}
	layout := p.layout()
	if layout < oldestLayout || layout > layoutNumber {
		p.forgetLayout(objects.AgentMapConns)
		return nil
	}
	m, err := ebpf.LoadPinnedMap(p.Path(objects.AgentMapConns), nil)
	if err != nil {
		return nil
	}
	b := &ConnsBefore{conns: m, layout: layout, counts: loads}
	if int(m.ValueSize()) != b.lineBytes() {
		p.forget(objects.AgentMapConns, m, fmt.Sprintf("no line of layout-%d is as long", layout))
		m.Close()
		return nil
	}
	p.Forgotten = ""
	return b
}

func (b *ConnsBefore) Close() error {
	if b == nil {
		return nil
	}
	return b.conns.Close()
}

// earlierLine is a line up to layoutOfTuples.
type earlierLine struct {
	Fingerprint [objects.LineSlots]uint64
	Slot        [objects.LineSlots]struct {
		Flow              [40]byte // struct tuple
		SeenNs            uint64
		LbBe              uint64
		Offering, Epoch   uint32
		NextIn, Flags     uint32
		Generation, State uint16
		NextOut           uint32
	}
}

func (b *ConnsBefore) lineBytes() int {
	if b.layout <= layoutOfTuples {
		return binary.Size(earlierLine{})
	}
	return binary.Size(objects.AgentConnLine{})
}

// inLoads are the flags of entries that count in a load: of requests in progress, and of pending connections.
const inLoads = 1 | 2 | 128 // CONN_ASKING | CONN_PENDING | CONN_ASKING_ODD

// Lines calls f with each line that has entries, as this version has them.
func (b *ConnsBefore) Lines(f func(*objects.AgentConnLine) error) error {
	for i := range b.conns.MaxEntries() {
		line, err := b.line(i)
		if err != nil {
			return fmt.Errorf("read the earlier table of flows: %w", err)
		}
		used := false
		for k := range line.Slot {
			used = used || line.Fingerprint[k] > objects.NoDigest
			if !b.counts {
				line.Slot[k].Flags &^= inLoads
			}
		}
		if !used {
			continue
		}
		if err := f(line); err != nil {
			return err
		}
	}
	return nil
}

func (b *ConnsBefore) line(i uint32) (*objects.AgentConnLine, error) {
	var line objects.AgentConnLine
	if b.layout > layoutOfTuples {
		return &line, b.conns.Lookup(i, &line)
	}
	var was earlierLine
	if err := b.conns.Lookup(i, &was); err != nil {
		return nil, err
	}
	line.Fingerprint = was.Fingerprint
	var errs []error
	for k := range was.Slot {
		from, to := &was.Slot[k], &line.Slot[k]
		if b.layout <= layoutOfMarks {
			line.Fingerprint[k] = was.Fingerprint[k]&^objects.NoDigest | was.Fingerprint[k]/marked%2*objects.IsEstablished
		}
		_, err := binary.Decode(append(from.Flow[:37:37], make([]byte, binary.Size(to)-37)...), binary.NativeEndian, to)
		errs = append(errs, err)
		to.LbBe, to.Seen, to.Epoch = from.LbBe, uint32(from.SeenNs>>objects.SeenShift), uint16(from.Epoch)
		to.NextIn, to.NextOut, to.Generation = from.NextIn, from.NextOut, from.Generation
		to.Flags, to.State = uint8(from.Flags), uint8(from.State)
	}
	return &line, errors.Join(errs...)
}
