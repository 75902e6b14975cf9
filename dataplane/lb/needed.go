package lb

import (
	"fmt"
	"slices"
	"unsafe"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"proffer/dataplane/objects"
	"proffer/table"
	"proffer/topo"
)

// serverInWord is WORD_SERVER of bpf/lb/flow.h.
const serverInWord = 1<<14 - 1

// Needed reports of some services which of their earlier pools, in the order of the history,
// have flows in the table: the entry's server is a candidate of its bucket in that pool, and
// in no newer pool. An entry does not name its service, so one flow may stand for several.
func (l *LB) Needed(vips []topo.VIP) (map[topo.VIP][]bool, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	needed := map[topo.VIP][]bool{}
	var services []horizon
	for _, vip := range vips {
		if at, known := l.services[vip]; known {
			h := horizon{tables: at.svc.Tables, pools: pastPools(&at.svc, l.numbers)}
			h.needed = make([]bool, len(h.tables)-1)
			services, needed[vip] = append(services, h), h.needed
		}
	}
	return needed, l.eachTable(func(lines []objects.LBLine) { meetAll(services, lines) })
}

// meetAll has services meet all entries of a table.
func meetAll(services []horizon, lines []objects.LBLine) {
	for _, line := range lines {
		for k, word := range line.Word {
			if word == 0 {
				continue
			}
			for i := range services {
				services[i].meet(line.Fingerprint[k], uint16(word&serverInWord))
			}
		}
	}
}

// eachTable has read read the flow table, and that of before.
func (l *LB) eachTable(read func([]objects.LBLine)) error {
	if err := readTable(l.objs.Flows, l.Lines, read); err != nil {
		return err
	}
	l.sweeping.Lock()
	defer l.sweeping.Unlock()
	if l.before == nil {
		return nil
	}
	return readTable(l.before.Map, l.before.Lines(), read)
}

// readTable has read read a table of so many lines.
func readTable(flows *ebpf.Map, lines uint32, read func([]objects.LBLine)) error {
	mem, err := unix.Mmap(flows.FD(), 0, int(lines)*objects.LineBytes, unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		return fmt.Errorf("map the flow table into memory: %w", err)
	}
	defer unix.Munmap(mem)
	read(unsafe.Slice((*objects.LBLine)(unsafe.Pointer(&mem[0])), lines))
	return nil
}

// horizon is a service's tables, of today and of earlier pools, with the servers' numbers.
type horizon struct {
	tables []*table.Table
	pools  [][]uint16
	needed []bool
}

// meet finds the newest pool in which a flow may have begun.
func (h *horizon) meet(fingerprint uint64, server uint16) {
	for j, t := range h.tables {
		list := t.Lookup(fingerprint) // its upper half is the digest's, which gives the bucket
		if slices.ContainsFunc(list, func(at uint16) bool { return h.pools[j][at] == server }) {
			if j > 0 {
				h.needed[j-1] = true
			}
			return
		}
	}
}
