package dataplane

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"sync"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/ringbuf"

	"proffer/topo"
)

// LB is the load balancer's data plane (bpf/lb/lb.bpf.c) on one link.
type LB struct {
	plane
	mu       sync.Mutex // Apply and SetNextHops both write servers
	objs     lbObjects
	node     topo.Node
	numbers  *numbers
	servers  []topo.Server
	written  map[uint32]lbServer // by number
	signers  map[lbSigner]lbKey
	services map[topo.VIP]placed
	records  *records
	slots    *slots
	tables   tables
	retired  []placed // that no record names any more
}

// NewLB loads the program for cfg and fills its maps; Attach makes it work.
func NewLB(cfg *topo.LB) (*LB, error) { return newLB(cfg, nil) }

// newLB lets a test change the programs before they are loaded.
func newLB(cfg *topo.LB, change func(*ebpf.CollectionSpec) error) (_ *LB, err error) {
	dev, err := net.InterfaceByName(cfg.Interface)
	if err != nil {
		return nil, fmt.Errorf("link %q: %w", cfg.Interface, err)
	}
	spec, err := loadLb()
	if err != nil {
		return nil, fmt.Errorf("read the lb programs: %w", err)
	}
	l := &LB{
		plane:    plane{dev: dev, flows: cfg.Flows},
		node:     cfg.Node,
		written:  map[uint32]lbServer{},
		signers:  map[lbSigner]lbKey{},
		services: map[topo.VIP]placed{},
	}
	if l.names, err = counterNames(spec); err != nil {
		return nil, err
	}
	if err := l.prepare(spec, cfg, change); err != nil {
		return nil, err
	}
	if l.pins, l.unpinned, err = openPins(cfg.Pin, dev); err != nil {
		return nil, err
	}
	adopted := l.pins.adopt(spec, lbMapFlows, lbMapServerByLocator)
	if err := l.fits(cfg.Flows.Entries, adopted[lbMapFlows] != nil); err != nil {
		return nil, err
	}
	if err := spec.LoadAndAssign(&l.objs, &ebpf.CollectionOptions{MapReplacements: adopted}); err != nil {
		return nil, loadError("lb", err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, l.Close())
		}
	}()
	l.counters, l.nextHops, l.sweep = l.objs.Counters, l.objs.NextHops, l.objs.SweepFlows
	if l.lost, err = ringbuf.NewReader(l.objs.Unresolved); err != nil {
		return nil, fmt.Errorf("read unresolved next hops: %w", err)
	}
	if l.numbers, err = readNumbers(l.objs.ServerByLocator); err != nil {
		return nil, err
	}
	if l.slots, err = newSlots(l.objs.Tables); err != nil {
		return nil, err
	}
	if l.records, err = newRecords(l.objs.Services, l.objs.ServiceSlots, l.slots.wait); err != nil {
		return nil, err
	}
	return l, l.Apply(cfg)
}

// prepare sets what the programs take as constants, and the size of their maps.
func (l *LB) prepare(spec *ebpf.CollectionSpec, cfg *topo.LB, change func(*ebpf.CollectionSpec) error) error {
	if err := constants(spec, &cfg.Node, l.dev); err != nil {
		return err
	}
	if err := l.sizeFlows(spec, cfg); err != nil {
		return err
	}
	if change != nil {
		return change(spec)
	}
	return nil
}

func bpfKey(k topo.Key) lbKey {
	return lbKey{K0: binary.LittleEndian.Uint64(k[:8]), K1: binary.LittleEndian.Uint64(k[8:])}
}

// Attach puts the program on the link; from now on flows outlive this process.
func (l *LB) Attach() error {
	err := l.pins.keep(map[string]*ebpf.Map{
		lbMapFlows: l.objs.Flows, lbMapServerByLocator: l.objs.ServerByLocator,
	})
	if err != nil {
		return err
	}
	return l.attach(l.objs.Lb)
}

// Apply makes the services, their servers and the keys those of cfg, while
// packets flow: each meets a service as it was or as it is, with the whole table
// that belongs to it. What the programs were loaded with does not change, and
// nothing is written that stays as it was.
func (l *LB) Apply(cfg *topo.LB) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.SetKeys(cfg.Keys); err != nil {
		return err
	}
	all := allServers(cfg)
	if err := l.numbers.take(all); err != nil {
		return err
	}
	if err := l.writeServers(all); err != nil {
		return err
	}
	if err := l.writeServerKeys(cfg.Keys, all); err != nil {
		return err
	}
	if err := l.setServices(cfg.Services); err != nil {
		return err
	}
	return l.dropServers(all)
}

// Close detaches the program and frees its maps.
func (l *LB) Close() error {
	errs := []error{l.plane.close(), l.slots.close(), l.records.close(), l.objs.Close()}
	for _, p := range l.services {
		errs = append(errs, p.table.Close())
	}
	for _, p := range l.retired {
		errs = append(errs, p.table.Close())
	}
	return errors.Join(errs...)
}
