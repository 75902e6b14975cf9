package edgenode

import (
	"fmt"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"proffer/dataplane/objects"
	"proffer/topo"
)

// VirtualCore is the work of a virtual core until an instant (bpf/edge/functions/virtual.h).
type VirtualCore struct {
	At      time.Duration // of CLOCK_MONOTONIC
	Busy    time.Duration // until then
	Stayed  time.Duration // of the served packets together, from arrival to the end of service
	Served  uint64        // packets, those included that wait
	Dropped uint64
}

// Virtual returns that of a core, and whether any chain has a virtual core.
func (n *Node) Virtual(core int) (v VirtualCore, there bool, err error) {
	if !n.isVirtual() {
		return v, false, nil
	}
	var c objects.EdgeNodeVirtualCore
	if err := n.objs.VirtualCores.LookupWithFlags(uint32(core), &c, ebpf.LookupLock); err != nil {
		return v, true, fmt.Errorf("read virtual core %d: %w", core, err)
	}
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		return v, true, fmt.Errorf("read the clock: %w", err)
	}
	v = VirtualCore{At: time.Duration(now.Nano()), Stayed: time.Duration(c.StayedNs), Served: c.Served, Dropped: c.Dropped}
	v.Busy = time.Duration(c.BusyNs) - max(0, time.Duration(c.FreeNs)-v.At)
	return v, true, nil
}

// virtualBusy is for how long each virtual core has worked.
func (n *Node) virtualBusy() (busy []time.Duration, err error) {
	for core := range n.cfg.Cores {
		v, _, err := n.Virtual(core)
		if err != nil {
			return nil, err
		}
		busy = append(busy, v.Busy)
	}
	return busy, nil
}

func (n *Node) isVirtual() bool {
	for _, c := range n.cfg.Chains {
		if virtualCost(&c) > 0 {
			return true
		}
	}
	return false
}

// virtualCost is the time that a packet of a chain takes of its virtual core; 0: it has none.
func virtualCost(c *topo.Chain) (sum time.Duration) {
	for _, f := range c.Functions {
		if v, is := f.(topo.Virtual); is {
			sum += v.Each
		}
	}
	return sum
}

func (n *Node) virtual(f topo.Virtual) (function, error) {
	if f.Each <= 0 || f.Each > mostCost || f.Queue < 0 {
		return function{}, fmt.Errorf("virtual: %v a packet, %d in the queue: want more than 0 and at most %v, and no less than 0", f.Each, f.Queue, mostCost)
	}
	setting := objects.EdgeNodeVirtualSetting{Ns: uint64(f.Each), LongestNs: uint64(f.Queue) * uint64(f.Each)}
	return function{objects.EdgeNodeProgNodeVirtual, func(slot uint32) error { return n.objs.VirtualSettings.Put(slot, setting) }}, nil
}
