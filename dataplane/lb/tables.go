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
func write(svc *plan.Service, n *numbers, seats seating) (*ebpf.Map, error) {
	return load(buckets(svc, n, seats))
}

// load makes a map of a table's elements.
func load(elements []uint64) (*ebpf.Map, error) {
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
	copy(unsafe.Slice((*uint64)(unsafe.Pointer(&mem[0])), len(elements)), elements)
	return m, nil
}

// buckets lists the servers of each bucket: the candidates of today, then those of earlier
// tables, the latest first: a flow is recovered from the union. A server that left the
// pool gets no question: a question is lost at a host that is down. (A server that is
// to finish its flows drains.) Behind the buckets are the members for which these have no
// room.
func buckets(svc *plan.Service, n *numbers, seats seating) []uint64 {
	if svc.Dispatch.Seats() && svc.Signals() {
		return bucketsOfAll(svc, n)
	}
	pools := pastPools(svc, n)
	out := make([]uint64, svc.Buckets())
	var members []uint16
	idle := withoutWeight(svc.Servers, pools[0])
	for i := range svc.Buckets() {
		members = add(members[:0], svc.Tables[0].Bucket(i), pools[0])
		choices := len(members)
		if svc.Signals() {
			for j := 1; j < len(pools); j++ {
				members = add(members, svc.Tables[j].Bucket(i), pools[j])
			}
			idleLast(members[choices:], idle)
		} else {
			members = addPresumed(members, svc, i, pools)
		}
		out = put(out, i, members, choices)
		if last := len(members) - 1; last >= 0 && len(members) <= objects.NamedMembers {
			out[i] |= seats.bits(members[last])
		}
	}
	return out
}

// withoutWeight has the numbers of a pool's servers that get no new flows: they drain, or are down.
func withoutWeight(servers []topo.Server, numbers []uint16) map[uint16]bool {
	idle := map[uint16]bool{}
	for i, s := range servers {
		if s.Weight == 0 {
			idle[numbers[i]] = true
		}
	}
	return idle
}

// idleLast moves servers that get no new flows behind the others, the earlier members last: a question
// is lost at a host that is down, and the last member may be probed (bpf/lb/probe.h).
func idleLast(members []uint16, idle map[uint16]bool) {
	if len(idle) == 0 {
		return
	}
	var last []uint16
	first := members[:0]
	for _, m := range members {
		if idle[m] {
			last = append(last, m)
		} else {
			first = append(first, m)
		}
	}
	slices.Reverse(last)
	copy(members[len(first):], last)
}

// bucketsOfAll lists all servers in each bucket, from its candidate on: a flow may be at any of them.
// Buckets with the same candidate share their elements.
func bucketsOfAll(svc *plan.Service, n *numbers) []uint64 {
	pool := n.ofPool(svc.Servers)
	out, made := make([]uint64, svc.Buckets()), map[int]uint64{}
	idle := withoutWeight(svc.Servers, pool)
	for i := range svc.Buckets() {
		first, choices := 0, 0
		for _, at := range svc.Tables[0].Bucket(i) {
			first, choices = int(at), 1
		}
		if _, is := made[first]; !is {
			members := slices.Concat(pool[first:], pool[:first])
			idleLast(members[choices:], idle)
			out = put(out, i, members, choices)
			made[first] = out[i]
		}
		out[i] = made[first]
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

// put writes a bucket (bpf/lb/service.h), and behind all buckets the members for which it has no
// room (bpf/lb/members.h).
func put(out []uint64, bucket int, members []uint16, choices int) []uint64 {
	word := uint64(len(members))<<objects.MembersShift | uint64(choices)<<objects.ChoicesShift
	named := members
	if len(members) > objects.NamedMembers {
		named = members[:objects.FirstMembers]
		if len(out)%2 != 0 { // the bucket has half the number
			out = append(out, 0)
		}
		word |= uint64(len(out)/2) << objects.RestShift
		for four := range slices.Chunk(members[objects.FirstMembers:], objects.ElementMembers) {
			out = append(out, packed(four, 16))
		}
	}
	out[bucket] = word | packed(named, objects.NumberBits)
	return out
}

// packed is a word of numbers of so many bits, the first in the lowest.
func packed(list []uint16, bits int) (word uint64) {
	for i, number := range list {
		word |= uint64(number) << (i * bits)
	}
	return word
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
