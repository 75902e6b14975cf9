package lb

import (
	"fmt"
	"slices"
	"unsafe"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"proffer/dataplane/objects"
	"proffer/plan"
	"proffer/topo"
)

// write makes a map of a service's buckets.
func write(svc *plan.Service, n *numbers) (*ebpf.Map, error) {
	elements := buckets(svc, n)
	m, err := newTable(len(elements))
	if err != nil {
		return nil, err
	}
	mem, err := unix.Mmap(m.FD(), 0, len(elements)*objects.BucketBytes, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		m.Close()
		return nil, fmt.Errorf("map a table of %d elements into memory: %w", len(elements), err)
	}
	defer unix.Munmap(mem)
	copy(unsafe.Slice((*objects.LBCandidates)(unsafe.Pointer(&mem[0])), len(elements)), elements)
	return m, nil
}

// buckets lists the servers of each bucket: the candidates of today, then those of earlier
// tables, the latest first: a flow is recovered from the union. A server that left the
// pool gets no question: a question is lost at a host that is down. (A server that is
// to finish its flows drains.) Behind the buckets are the members for which their records
// have no room.
func buckets(svc *plan.Service, n *numbers) []objects.LBCandidates {
	pools := pastPools(svc, n)
	out := make([]objects.LBCandidates, svc.Buckets())
	var members []uint16
	for i := range svc.Buckets() {
		members = add(members[:0], svc.Tables[0].Bucket(i), pools[0])
		out[i].Choices = uint8(len(members))
		if svc.Signals() {
			for j := 1; j < len(pools); j++ {
				members = add(members, svc.Tables[j].Bucket(i), pools[j])
			}
		} else {
			members = addPresumed(members, svc, i, pools)
		}
		out = put(out, i, members)
	}
	return out
}

// pastPools are the numbers of the servers of today's pool and of those of the history, as
// far as they are in today's.
func pastPools(svc *plan.Service, n *numbers) [][]uint16 {
	pool := n.ofPool(svc.Servers)
	pools := [][]uint16{pool}
	for _, v := range svc.Past() {
		past := n.ofPool(v.Servers)
		for i, number := range past {
			if !slices.Contains(pool, number) {
				past[i] = noServer
			}
		}
		pools = append(pools, past)
	}
	return pools
}

// addPresumed appends the presumed owner of flows without an entry, where no agent can be
// asked: the candidate of the oldest pool, as far as it is still in the pool of today. Most
// flows without an entry here are as old as a pool that the history still has.
func addPresumed(members []uint16, svc *plan.Service, bucket int, pools [][]uint16) []uint16 {
	for j := len(pools) - 1; j > 0; j-- {
		for _, at := range svc.Tables[j].Bucket(bucket) {
			if pools[j][at] != noServer {
				return add(members, []uint16{at}, pools[j])
			}
		}
	}
	return members
}

// add appends the servers of a list that are not there yet, while there is room.
func add(members, list, numbers []uint16) []uint16 {
	for _, at := range list {
		if number := numbers[at]; number != noServer && len(members) < topo.MaxMembers && !slices.Contains(members, number) {
			members = append(members, number)
		}
	}
	return members
}

// put writes the members of a bucket. Those beyond its record follow the buckets
// (bpf/lb/crowd.h).
func put(out []objects.LBCandidates, bucket int, members []uint16) []objects.LBCandidates {
	b := &out[bucket]
	b.Members = uint8(len(members))
	if len(members) <= len(b.Server) {
		copy(b.Server[:], members)
		return out
	}
	next := uint32(len(out))
	copy(b.Server[:], members[:objects.RecordMembers])
	b.Server[objects.RecordMembers], b.Server[objects.RecordMembers+1] = uint16(next), uint16(next>>16)
	for rest := range slices.Chunk(members[objects.RecordMembers:], objects.CrowdMembers) {
		var element [objects.CrowdMembers]uint16
		copy(element[:], rest)
		out = append(out, *(*objects.LBCandidates)(unsafe.Pointer(&element)))
	}
	return out
}

// newTable makes an empty table, which can be written through memory.
func newTable(elements int) (*ebpf.Map, error) {
	m, err := ebpf.NewMap(&ebpf.MapSpec{
		Type:       ebpf.Array,
		KeySize:    4,
		ValueSize:  uint32(objects.BucketBytes),
		MaxEntries: uint32(elements),
		Flags:      unix.BPF_F_INNER_MAP | unix.BPF_F_MMAPABLE,
	})
	if err != nil {
		return nil, fmt.Errorf("make a table of %d elements: %w", elements, err)
	}
	return m, nil
}
