package lb

import (
	"fmt"
	"slices"
	"unsafe"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"proffer/dataplane/objects"
	"proffer/plan"
)

// write makes a map of a service's buckets.
func write(svc *plan.Service, n *numbers) (*ebpf.Map, error) {
	m, err := newTable(svc.Buckets())
	if err != nil {
		return nil, err
	}
	mem, err := unix.Mmap(m.FD(), 0, svc.Buckets()*objects.BucketBytes, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		m.Close()
		return nil, fmt.Errorf("map a table of %d buckets into memory: %w", svc.Buckets(), err)
	}
	defer unix.Munmap(mem)
	fill(unsafe.Slice((*objects.LBCandidates)(unsafe.Pointer(&mem[0])), svc.Buckets()), svc, n)
	return m, nil
}

// fill lists the servers of each bucket: the candidates of today, then those of earlier
// tables, the latest first: a flow is recovered from the union. A server that left the
// pool gets no question: a question is lost at a host that is down. (A server that is
// to finish its flows drains.)
func fill(out []objects.LBCandidates, svc *plan.Service, n *numbers) {
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
		addServers(&out[i], svc.Tables[0].Bucket(i), pool)
		out[i].Choices = out[i].Members
		for j := 1; j < len(members); j++ {
			addServers(&out[i], svc.Tables[j].Bucket(i), members[j])
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
		ValueSize:  uint32(objects.BucketBytes),
		MaxEntries: uint32(buckets),
		Flags:      unix.BPF_F_INNER_MAP | unix.BPF_F_MMAPABLE,
	})
	if err != nil {
		return nil, fmt.Errorf("make a table of %d buckets: %w", buckets, err)
	}
	return m, nil
}
