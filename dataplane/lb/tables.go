package lb

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"slices"
	"unsafe"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"proffer/dataplane/objects"
	"proffer/table"
	"proffer/topo"
)

// fingerprint tells apart the pools that tables are made from.
type fingerprint [sha256.Size]byte

func fingerprintOf(svc *topo.Service, pool []topo.Server) fingerprint {
	said := make([]byte, 0, 16*(len(pool)+1))
	said = binary.LittleEndian.AppendUint32(said, uint32(svc.Dispatch)<<8|uint32(svc.Select))
	said = binary.LittleEndian.AppendUint32(said, uint32(svc.Buckets))
	said = binary.LittleEndian.AppendUint32(said, uint32(svc.Choices))
	for _, s := range pool {
		said = binary.LittleEndian.AppendUint64(said, objects.LocatorBits(s.Locator))
		said = binary.LittleEndian.AppendUint32(said, uint32(s.Weight))
	}
	return sha256.Sum256(said)
}

// tables remembers those that were built last: a change of the pool makes the
// table of today one of the history, and only one is new.
type tables struct {
	built, before map[fingerprint]*table.Table
}

// built are the tables of a service: today's, then the history's.
type built struct {
	tables []*table.Table
	from   fingerprint
}

func (b *built) buckets() int { return b.tables[0].Buckets() }

// of builds the tables of a service, or remembers them.
func (t *tables) of(svc *topo.Service) (*built, error) {
	today, from, err := t.ofPool(svc, svc.Servers)
	if err != nil {
		return nil, err
	}
	b := &built{tables: []*table.Table{today}, from: from}
	for _, v := range svc.Past() {
		past, from, err := t.ofPool(svc, v.Servers)
		if err != nil {
			return nil, fmt.Errorf("version %d: %w", v.Version, err)
		}
		b.tables = append(b.tables, past)
		b.from = sha256.Sum256(append(b.from[:], from[:]...))
	}
	return b, nil
}

func (t *tables) ofPool(svc *topo.Service, pool []topo.Server) (*table.Table, fingerprint, error) {
	from := fingerprintOf(svc, pool)
	known := t.before[from]
	if known == nil {
		known = t.built[from]
	}
	if known == nil {
		var err error
		if known, err = table.Of(svc, pool); err != nil {
			return nil, from, err
		}
	}
	if t.built == nil {
		t.built = map[fingerprint]*table.Table{}
	}
	t.built[from] = known
	return known, from, nil
}

// forget drops the tables that the last configuration did not need.
func (t *tables) forget() { t.before, t.built = t.built, nil }

// write makes a map of the buckets.
func (b *built) write(svc *topo.Service, n *numbers) (*ebpf.Map, error) {
	m, err := newTable(b.buckets())
	if err != nil {
		return nil, err
	}
	mem, err := unix.Mmap(m.FD(), 0, b.buckets()*objects.BucketBytes, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		m.Close()
		return nil, fmt.Errorf("map a table of %d buckets into memory: %w", b.buckets(), err)
	}
	defer unix.Munmap(mem)
	b.fill(unsafe.Slice((*objects.LBCandidates)(unsafe.Pointer(&mem[0])), b.buckets()), svc, n)
	return m, nil
}

// fill lists the servers of each bucket: the candidates of today, then those
// that earlier tables had there, the latest first: a flow is recovered from the
// union. A server that left the pool is gone and gets no question: a question
// ends where its host is down. (One that shall finish its flows drains.)
func (b *built) fill(out []objects.LBCandidates, svc *topo.Service, n *numbers) {
	pool := n.ofPool(svc.Servers)
	members := [][]uint16{pool}
	for _, v := range svc.Past() {
		past := n.ofPool(v.Servers)
		for i, number := range past {
			if !slices.Contains(pool, number) {
				past[i] = noServer
			}
		}
		members = append(members, past)
	}
	for i := range out {
		addServers(&out[i], b.tables[0].Bucket(i), pool)
		out[i].Choices = out[i].Members
		for j := 1; j < len(members); j++ {
			addServers(&out[i], b.tables[j].Bucket(i), members[j])
		}
	}
}

// addServers appends the servers of a list that are not there yet, while there is room.
func addServers(b *objects.LBCandidates, list []uint16, numbers []uint16) {
	for _, at := range list {
		number := numbers[at]
		full := int(b.Members) == len(b.Server)
		if number != noServer && !full && !slices.Contains(b.Server[:b.Members], number) {
			b.Server[b.Members] = number
			b.Members++
		}
	}
}

// newTable makes an empty table, which can be written through memory.
func newTable(buckets int) (*ebpf.Map, error) {
	m, err := ebpf.NewMap(&ebpf.MapSpec{
		Type:       ebpf.Array,
		KeySize:    4,
		ValueSize:  objects.BucketBytes,
		MaxEntries: uint32(buckets),
		Flags:      unix.BPF_F_INNER_MAP | unix.BPF_F_MMAPABLE,
	})
	if err != nil {
		return nil, fmt.Errorf("make a table of %d buckets: %w", buckets, err)
	}
	return m, nil
}
