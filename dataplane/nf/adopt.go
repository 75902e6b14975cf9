package nf

import (
	"crypto/rand"
	"errors"
	"fmt"
	"net/netip"

	"github.com/cilium/ebpf"

	"proffer/dataplane/internal/plane"
	"proffer/dataplane/objects"
	"proffer/topo"
)

// notes are for the next daemon.
type notes struct{ Key topo.Key } // of the digests of flows

// stateMaps are the flows, with all that functions remember of them.
var stateMaps = []string{
	objects.NFMapNodeFlows, objects.NFMapNatOut, objects.NFMapNatIn, objects.NFMapNatPorts, objects.NFMapFirewallStates,
}

// keptMaps are the other maps that stay when a configuration changes.
var keptMaps = []string{objects.NFMapCounters, objects.NFMapNodeCounts, objects.NFMapVirtualCores, objects.NFMapUserSockets, objects.NFMapUserLinks}

// coreFunctions is the pin of the array of programs for a cpumap.
const coreFunctions = "core_functions"

// letGo frees the programs before these, once no packet is on its way through them: a core's queue may have had some
// when the programs were replaced.
func (n *Node) letGo() (err error) {
	for _, e := range n.earlier {
		err = errors.Join(err, e.Close())
	}
	n.earlier = nil
	return err
}

// adopt returns an earlier daemon's state and notes, all or nothing; without them the notes are new.
func (n *Node) adopt(spec *ebpf.CollectionSpec) (map[string]*ebpf.Map, notes) {
	was, found := plane.ReadNotes[notes](&n.Lasting)
	adopted := n.Adopt(spec, stateMaps...)
	if found && len(adopted) == len(stateMaps) {
		n.earlier = append(n.earlier, n.Left(objects.NFMapNodeFunctions), n.Left(coreFunctions))
		return adopted, was
	}
	for _, m := range adopted {
		m.Close()
	}
	rand.Read(was.Key[:])
	return nil, was
}

// lasting is the maps that outlive the daemon. The arrays of programs are among them, as the kernel empties one
// that no process and no pin holds.
func (n *Node) lasting() map[string]*ebpf.Map {
	all := map[string]*ebpf.Map{plane.NotesMap: n.notes.Map()}
	for _, name := range stateMaps {
		all[name] = n.shared[name]
	}
	all[objects.NFMapNodePrograms], all[objects.NFMapNodeFunctions] = n.objs.NodePrograms, n.objs.NodeFunctions
	if n.cores != nil {
		all[coreFunctions] = n.cores.Maps[objects.NFMapNodeFunctions]
	}
	return all
}

// adoptPools takes over the numbers of the public addresses that have bindings.
func (n *Node) adoptPools() error {
	var cursor ebpf.MapBatchCursor
	keys, values := make([]objects.NFTuple, sweptAtOnce), make([]objects.NFNatBinding, sweptAtOnce)
	for {
		count, err := n.objs.NatOut.BatchLookup(&cursor, keys, values, nil)
		last := errors.Is(err, ebpf.ErrKeyNotExist)
		if err != nil && !last {
			return fmt.Errorf("read the bindings: %w", err)
		}
		for _, b := range values[:count] {
			n.pools[netip.AddrFrom16(b.Addr.In6U.U6Addr8).Unmap()] = b.Pool
		}
		if last {
			return nil
		}
	}
}

// freePool is the lowest number that no public address has.
func (n *Node) freePool() uint32 {
	taken := map[uint32]bool{}
	for _, pool := range n.pools {
		taken[pool] = true
	}
	pool := uint32(0)
	for taken[pool] {
		pool++
	}
	return pool
}
