package nf

import (
	"fmt"
	"net/netip"
	"time"

	"github.com/cilium/ebpf"

	"proffer/dataplane/objects"
	"proffer/topo"
)

// function is the data plane's part of a network function: its program, and the writing of its
// settings for a slot. Another function is another case here (docs/operate/functions.md).
type function struct {
	program string
	set     func(slot uint32) error
}

// functionOf finds the data plane's part of a function with settings.
func (n *Node) functionOf(f topo.Function) (function, error) {
	switch f := f.(type) {
	case topo.Cost:
		return n.cost(f)
	case topo.SourceNAT:
		return n.nat(f)
	case topo.Firewall:
		return n.firewall(f)
	case topo.IDS:
		return n.ids(f)
	case topo.Rewriter:
		return n.rewriter(f)
	case topo.Virtual:
		return n.virtual(f)
	case topo.User:
		return n.user(f)
	}
	return function{}, fmt.Errorf("unknown function %q", f.Name())
}

const mostCost = 10 * time.Millisecond // of a packet: more is no cost but a stop

func (n *Node) cost(f topo.Cost) (function, error) {
	if f.Each <= 0 || f.Each > mostCost {
		return function{}, fmt.Errorf("cost %v: want more than 0 and at most %v", f.Each, mostCost)
	}
	return function{objects.NFProgNodeCost, func(slot uint32) error {
		return n.objs.CostSettings.Put(slot, objects.NFCostSetting{Ns: uint64(f.Each)})
	}}, nil
}

func (n *Node) nat(f topo.SourceNAT) (function, error) {
	if f.First < 1024 || f.First%64 != 0 || f.Ports < 64 || f.Ports%64 != 0 || f.First+n.cfg.Cores*f.Ports > 1<<16 {
		return function{}, fmt.Errorf("nat: %d ports of each of %d cores from %d on: want multiples of 64, from 1024 to 65535", f.Ports, n.cfg.Cores, f.First)
	}
	if !f.Public4.IsValid() && !f.Public6.IsValid() || f.Public4.IsValid() && !f.Public4.Is4() || f.Public6.IsValid() && !f.Public6.Is6() {
		return function{}, fmt.Errorf("nat: public addresses %v and %v: want an IPv4 and an IPv6 address, or one of them", f.Public4, f.Public6)
	}
	setting := objects.NFNatSetting{First: uint32(f.First), Ports: uint32(f.Ports)}
	for _, public := range []struct {
		to   *[16]byte
		pool *uint32
		is   netip.Addr
	}{{&setting.Public4.In6U.U6Addr8, &setting.Pool4, f.Public4}, {&setting.Public6.In6U.U6Addr8, &setting.Pool6, f.Public6}} {
		if !public.is.IsValid() {
			continue
		}
		pool, known := n.pools[public.is]
		if !known {
			pool = n.freePool()
			n.pools[public.is] = pool
		}
		if pool >= topo.MaxNatPools {
			return function{}, fmt.Errorf("nat: more than %d public addresses", topo.MaxNatPools)
		}
		*public.to, *public.pool = public.is.As16(), pool
	}
	return function{objects.NFProgNodeNat, func(slot uint32) error { return n.objs.NatSettings.Put(slot, setting) }}, nil
}

// fillChains puts the programs of every chain, by their names in C, into an array of programs, in both
// orders, and then their settings and lengths.
func (n *Node) fillChains(programs *ebpf.Map, named map[string]*ebpf.Program) error {
	for _, c := range n.cfg.Chains {
		if c.Service < 1 || c.Service >= topo.MaxEdgeServices || len(c.Functions) < 1 || len(c.Functions) > topo.MaxChain {
			return fmt.Errorf("service %d with %d functions: want 1 to %d, and 1 to %d functions", c.Service, len(c.Functions), topo.MaxEdgeServices-1, topo.MaxChain)
		}
		const out, in = 0, 1
		last := uint32(len(c.Functions) - 1)
		for i, f := range c.Functions {
			part, err := n.functionOf(f)
			if err != nil {
				return fmt.Errorf("service %d: %w", c.Service, err)
			}
			if err := part.set(uint32(c.Service*topo.MaxChain + i)); err != nil {
				return fmt.Errorf("write the settings of %s of service %d: %w", f.Name(), c.Service, err)
			}
			if err := put(programs, c.Service, out, uint32(i), named[part.program]); err != nil {
				return err
			}
			if err := put(programs, c.Service, in, last-uint32(i), named[part.program]); err != nil {
				return err
			}
		}
		for _, way := range []int{out, in} {
			if err := put(programs, c.Service, way, last+1, named[objects.NFProgNodeOut]); err != nil {
				return err
			}
		}
		if err := n.objs.NodeChains.Put(uint32(c.Service), last+1); err != nil {
			return fmt.Errorf("write the chain of service %d: %w", c.Service, err)
		}
	}
	return nil
}

// put puts a program into its place (CHAIN_PROGRAMS of bpf/edge/function.h).
func put(programs *ebpf.Map, service, way int, place uint32, prog *ebpf.Program) error {
	const chainPrograms = topo.MaxChain + 1
	at := uint32(service*2+way)*chainPrograms + place
	if err := programs.Put(at, prog); err != nil {
		return fmt.Errorf("put %v into the chain of service %d: %w", prog, service, err)
	}
	return nil
}
