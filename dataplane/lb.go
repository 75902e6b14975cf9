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

// LB is the load balancer's data plane (bpf/lb.bpf.c) on one link.
type LB struct {
	plane
	mu       sync.Mutex // Apply and SetNextHops both write servers
	objs     lbObjects
	node     topo.Node
	numbers  *numbers
	servers  []topo.Server
	services map[topo.VIP]placed
	tables   tables
	signers  map[lbSigner]bool
}

// placed is where a service stands in the maps.
type placed struct {
	slot     uint32 // of its table
	previous uint32 // of the one before, which a packet on its way may still read
	hasOlder bool
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
		services: map[topo.VIP]placed{},
		signers:  map[lbSigner]bool{},
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
	adopted := l.pins.adopt(spec, lbMapFlows, lbMapEmbryos, lbMapServerByLocator)
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
	return l, l.Apply(cfg)
}

// prepare sets what the programs take as constants, and the size of their maps.
func (l *LB) prepare(spec *ebpf.CollectionSpec, cfg *topo.LB, change func(*ebpf.CollectionSpec) error) error {
	if err := constants(spec, &cfg.Node, l.dev); err != nil {
		return err
	}
	if err := spec.Variables["candidate_key"].Set(bpfKey(cfg.CandidateKey)); err != nil {
		return fmt.Errorf("set the candidate key: %w", err)
	}
	spec.Maps[lbMapFlows].MaxEntries = uint32(cfg.Flows.Entries)
	spec.Maps[lbMapEmbryos].MaxEntries = uint32(embryonicEntries(cfg.Flows))
	if change != nil {
		return change(spec)
	}
	return nil
}

// embryonicEntries is the size of the table of embryonic flows.
func embryonicEntries(f topo.FlowTable) int {
	if f.Embryonic == 0 {
		return f.Entries
	}
	return f.Embryonic
}

func bpfKey(k topo.Key) lbKey {
	return lbKey{K0: binary.LittleEndian.Uint64(k[:8]), K1: binary.LittleEndian.Uint64(k[8:])}
}

// Attach puts the program on the link; from now on flows outlive this process.
func (l *LB) Attach() error {
	err := l.pins.keep(map[string]*ebpf.Map{
		lbMapFlows: l.objs.Flows, lbMapEmbryos: l.objs.Embryos, lbMapServerByLocator: l.objs.ServerByLocator,
	})
	if err != nil {
		return err
	}
	return l.attach(l.objs.Lb)
}

// Apply makes the services, their servers and the keys those of cfg, while
// packets flow: each meets a service as it was or as it is, with the whole table
// that belongs to it. What the programs were loaded with does not change.
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
	wanted := map[topo.VIP]bool{}
	for i := range cfg.Services {
		wanted[cfg.Services[i].VIP] = true
		if err := l.writeService(&cfg.Services[i]); err != nil {
			return fmt.Errorf("write service %s: %w", cfg.Services[i].Name, err)
		}
	}
	for vip := range l.services {
		if !wanted[vip] {
			if err := l.removeService(vip); err != nil {
				return fmt.Errorf("remove service %s: %w", vip, err)
			}
		}
	}
	l.tables.forget()
	if err := l.markVIPs(cfg.Services); err != nil {
		return err
	}
	return l.dropServers(all)
}

// writeService gives a service a table in a free slot, then points it there.
func (l *LB) writeService(svc *topo.Service) error {
	buckets, err := l.tables.buckets(svc, l.numbers)
	if err != nil {
		return err
	}
	at := l.services[svc.VIP]
	slot, err := l.freeSlot()
	if err != nil {
		return err
	}
	if err := putTable(l.objs.Tables, slot, buckets); err != nil {
		return err
	}
	if err := l.objs.Services.Put(serviceKey(svc.VIP), serviceRecord(svc, slot, len(buckets), l.dev.MTU)); err != nil {
		return err
	}
	next := placed{slot: slot}
	if _, known := l.services[svc.VIP]; known {
		next.previous, next.hasOlder = at.slot, true
	}
	l.services[svc.VIP] = next
	if at.hasOlder { // two tables ago: no packet takes that long
		return deleteTable(l.objs.Tables, at.previous)
	}
	return nil
}

// freeSlot finds a place among the tables that no service uses or used last.
func (l *LB) freeSlot() (uint32, error) {
	used := map[uint32]bool{}
	for _, p := range l.services {
		used[p.slot] = true
		if p.hasOlder {
			used[p.previous] = true
		}
	}
	for slot := range l.objs.Tables.MaxEntries() {
		if !used[slot] {
			return slot, nil
		}
	}
	return 0, errors.New("no room for another table")
}

func (l *LB) removeService(vip topo.VIP) error {
	at := l.services[vip]
	delete(l.services, vip)
	errs := []error{l.objs.Services.Delete(serviceKey(vip)), deleteTable(l.objs.Tables, at.slot)}
	if at.hasOlder {
		errs = append(errs, deleteTable(l.objs.Tables, at.previous))
	}
	return errors.Join(errs...)
}

// markVIPs marks every VIP: with the service that takes its fragments, if any.
func (l *LB) markVIPs(services []topo.Service) error {
	want := map[lbServiceKey]lbService{}
	for i := range services {
		svc := &services[i]
		mark := serviceKey(topo.VIP{Addr: svc.VIP.Addr})
		mark.Protocol = 0
		if _, marked := want[mark]; !marked {
			want[mark] = lbService{}
		}
		if svc.Fragments == topo.HashFragments {
			var record lbService
			if err := l.objs.Services.Lookup(serviceKey(svc.VIP), &record); err != nil {
				return fmt.Errorf("read service %s: %w", svc.Name, err)
			}
			want[mark] = record
		}
	}
	var key lbServiceKey
	var value lbService
	var stale []lbServiceKey
	for all := l.objs.Services.Iterate(); all.Next(&key, &value); {
		if _, ok := want[key]; key.PortBe == 0 && !ok {
			stale = append(stale, key)
		}
	}
	for _, key := range stale {
		if err := l.objs.Services.Delete(key); err != nil {
			return fmt.Errorf("unmark a VIP: %w", err)
		}
	}
	for key, value := range want {
		if err := l.objs.Services.Put(key, value); err != nil {
			return fmt.Errorf("mark a VIP: %w", err)
		}
	}
	return nil
}

// serviceRecord is a service as the program reads it.
func serviceRecord(svc *topo.Service, slot uint32, buckets, mtu int) lbService {
	r := lbService{
		Table:     slot,
		Buckets:   uint32(buckets),
		Dispatch:  uint8(svc.Dispatch),
		Wire:      uint8(svc.Wire),
		Fragments: uint8(svc.Fragments),
		Vias:      uint8(len(svc.Via)),
		Mtu:       uint16(min(mtu-longestHeader(svc), 0xffff)),
	}
	for i, via := range svc.Via {
		r.Via[i].In6U.U6Addr8 = via.As16()
	}
	return r
}

// longestHeader is what a client's packet leaves room for: a question to as many
// servers as an offer has, and the way back (docs/wire.md).
func longestHeader(svc *topo.Service) int {
	n := len(svc.Via) + 1
	if svc.Dispatch == topo.Hunt {
		n = len(svc.Via) + max(svc.Choices, 1) + 1
	}
	switch {
	case svc.Wire == topo.Insert:
		return 8 + 16*(n+2)
	case n == 1:
		return 40
	default:
		return 40 + 8 + 16*(n-1)
	}
}

func serviceKey(v topo.VIP) lbServiceKey {
	key := lbServiceKey{PortBe: portBits(v.Port), Protocol: v.Protocol.Number()}
	key.Vip.In6U.U6Addr8 = v.Addr.As16()
	return key
}

// Close detaches the program and frees its maps.
func (l *LB) Close() error { return errors.Join(l.plane.close(), l.objs.Close()) }
