package nf

import (
	"fmt"
	"math/rand/v2"
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
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.virtualCore(core)
}

func (n *Node) virtualCore(core int) (v VirtualCore, there bool, err error) {
	if !n.isVirtual() {
		return v, false, nil
	}
	var c objects.NFVirtualCore
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

// virtualBusy is for how long each virtual core has worked, with the noise of a measurement if it is to have any.
func (n *Node) virtualBusy() (busy []time.Duration, err error) {
	noise := n.virtualNoise()
	if n.reported == nil {
		for core := range n.cfg.Cores {
			n.reported = append(n.reported, reported{random: rand.New(rand.NewPCG(uint64(n.cfg.Server), uint64(core)))})
		}
	}
	for core := range n.cfg.Cores {
		v, _, err := n.virtualCore(core)
		if err != nil {
			return nil, err
		}
		if noise > 0 {
			v.Busy = n.reported[core].next(v.At, v.Busy, noise)
		}
		busy = append(busy, v.Busy)
	}
	return busy, nil
}

// reported is the last report of a virtual core with noise.
type reported struct {
	random         *rand.Rand
	at, known, sum time.Duration // the instant; until then: the true work, and the reported work
}

// next is the reported work until an instant: the load since the last report has an error, and is 0 to 1, as of
// the simulator's monitor (lab/edgesim).
func (r *reported) next(at, busy time.Duration, noise float64) time.Duration {
	if elapsed := at - r.at; r.at == 0 {
		r.sum = busy
	} else if elapsed > 0 {
		load := float64(busy-r.known)/float64(elapsed) + noise*r.random.NormFloat64()
		r.sum += time.Duration(min(1, max(0, load)) * float64(elapsed))
	}
	r.at, r.known = at, busy
	return r.sum
}

// virtualNoise is the greatest of all chains.
func (n *Node) virtualNoise() (noise float64) {
	for _, c := range n.cfg.Chains {
		for _, f := range c.Functions {
			if v, is := f.(topo.Virtual); is {
				noise = max(noise, v.Noise)
			}
		}
	}
	return noise
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
	setting := objects.NFVirtualSetting{Ns: uint64(f.Each), LongestNs: uint64(f.Queue) * uint64(f.Each)}
	return function{objects.NFProgNodeVirtual, func(slot uint32) error { return n.objs.VirtualSettings.Put(slot, setting) }}, nil
}
