package dataplane

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/ringbuf"

	"proffer/topo"
)

// LB is the load balancer's data plane (bpf/lb.bpf.c) on one link.
type LB struct {
	plane
	objs    lbObjects
	servers []topo.Server // by number, the union over all services
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
	l := &LB{plane: plane{dev: dev, flows: cfg.Flows}, servers: unionOfServers(cfg.Services)}
	if l.names, err = counterNames(spec); err != nil {
		return nil, err
	}
	if err := l.prepare(spec, cfg, change); err != nil {
		return nil, err
	}
	if err := spec.LoadAndAssign(&l.objs, nil); err != nil {
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
	return l, l.fill(cfg)
}

// prepare sets what the programs take as constants, and the size of their maps.
func (l *LB) prepare(spec *ebpf.CollectionSpec, cfg *topo.LB, change func(*ebpf.CollectionSpec) error) error {
	if err := constants(spec, &cfg.Node, l.dev); err != nil {
		return err
	}
	key := lbKey{
		K0: binary.LittleEndian.Uint64(cfg.CandidateKey[:8]),
		K1: binary.LittleEndian.Uint64(cfg.CandidateKey[8:]),
	}
	if err := spec.Variables["candidate_key"].Set(key); err != nil {
		return fmt.Errorf("set the candidate key: %w", err)
	}
	members := 0
	for _, s := range cfg.Services {
		members += len(s.Servers)
	}
	spec.Maps[lbMapFlows].MaxEntries = uint32(cfg.Flows.Entries)
	spec.Maps[lbMapPool].MaxEntries = uint32(max(members, 1))
	spec.Maps[lbMapServers].MaxEntries = uint32(max(len(l.servers), 1))
	if change != nil {
		return change(spec)
	}
	return nil
}

// unionOfServers numbers every server once, however many services it has.
func unionOfServers(services []topo.Service) []topo.Server {
	var all []topo.Server
	seen := map[uint64]bool{}
	for _, svc := range services {
		for _, s := range svc.Servers {
			if bits := locatorBits(s.Locator); !seen[bits] {
				seen[bits] = true
				all = append(all, s)
			}
		}
	}
	return all
}

// fill writes servers, pools and services; services last, because they are what
// makes packets look at the rest.
func (l *LB) fill(cfg *topo.LB) error {
	number := map[uint64]uint32{}
	for i, s := range l.servers {
		bits := locatorBits(s.Locator)
		number[bits] = uint32(i)
		err := errors.Join(
			l.objs.Servers.Put(uint32(i), lbServer{LocatorBe: bits}),
			l.objs.ServerByLocator.Put(bits, uint32(i)))
		if err != nil {
			return fmt.Errorf("write server %s: %w", s.Name, err)
		}
	}
	next := uint32(0)
	for _, svc := range cfg.Services {
		first := next
		for _, s := range svc.Servers {
			if err := l.objs.Pool.Put(next, number[locatorBits(s.Locator)]); err != nil {
				return fmt.Errorf("write pool of %s: %w", svc.Name, err)
			}
			next++
		}
		if err := l.writeService(&svc, first); err != nil {
			return fmt.Errorf("write service %s: %w", svc.Name, err)
		}
	}
	return nil
}

func (l *LB) writeService(svc *topo.Service, pool uint32) error {
	value := lbService{
		Pool:     pool,
		Servers:  uint32(len(svc.Servers)),
		Choices:  uint32(max(svc.Choices, 1)),
		Dispatch: uint32(svc.Dispatch),
	}
	mark := lbServiceKey{}
	mark.Vip.In6U.U6Addr8 = svc.VIP.Addr.As16()
	return errors.Join(
		l.objs.Services.Put(mark, lbService{}),
		l.objs.Services.Put(serviceKey(svc.VIP), value))
}

func serviceKey(v topo.VIP) lbServiceKey {
	key := lbServiceKey{PortBe: portBits(v.Port), Protocol: 6}
	key.Vip.In6U.U6Addr8 = v.Addr.As16()
	return key
}

// Attach puts the program on the link.
func (l *LB) Attach() error { return l.attach(l.objs.Lb) }

// SetNextHops gives the programs the neighbours towards clients and servers.
func (l *LB) SetNextHops(hops topo.NextHops) error {
	if err := l.plane.SetNextHops(hops); err != nil {
		return err
	}
	for i, s := range l.servers {
		record := lbServer{LocatorBe: locatorBits(s.Locator)}
		if mac, ok := hops.Lookup(s.Locator.Addr()); ok {
			record.Mac, record.Ready = mac, 1
		}
		if err := l.objs.Servers.Put(uint32(i), record); err != nil {
			return fmt.Errorf("write next hop of server %s: %w", s.Name, err)
		}
	}
	return nil
}

// Resolved says how many of the servers have a next hop.
func (l *LB) Resolved() (ready, all int) {
	for _, s := range l.servers {
		if _, ok := l.have.Lookup(s.Locator.Addr()); ok {
			ready++
		}
	}
	return ready, len(l.servers)
}

// Close detaches the program and frees its maps.
func (l *LB) Close() error { return errors.Join(l.plane.close(), l.objs.Close()) }
