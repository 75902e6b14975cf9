package bench

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"

	"proffer/dataplane/edge"
	"proffer/dataplane/nf"
	"proffer/dataplane/objects"
	"proffer/topo"
)

// Edge is an edge LB with the program of the link to clients in a bench. Its tail calls stay.
type Edge struct {
	*edge.LB
	*Bench
}

// NewEdge loads the edge LB of cfg.
func NewEdge(cfg *topo.EdgeLB) (*Edge, error) {
	b, err := newBench(0)
	if err != nil {
		return nil, err
	}
	l, err := edge.NewWith(cfg, func(spec *ebpf.CollectionSpec) error {
		p := spec.Programs[objects.EdgeProgEdgeClients]
		return b.surround(p, p, p)
	})
	if err != nil {
		return nil, errors.Join(err, b.Close())
	}
	b.prog = l.Objects().EdgeClients
	return &Edge{l, b}, nil
}

// Close frees both.
func (b *Edge) Close() error { return errors.Join(b.LB.Close(), b.Bench.Close()) }

// EdgeNode is a datapath node with its first program in a bench. Its tail calls stay.
type EdgeNode struct {
	*nf.Node
	*Bench
}

// NewEdgeNode loads the node of cfg, the cores of which share a CPU, and leaves the functions out of
// its chains: after the tunnel's headers comes the end of the chain.
func NewEdgeNode(cfg *topo.Datapath) (*EdgeNode, error) {
	b, err := newBench(0)
	if err != nil {
		return nil, err
	}
	n, err := nf.NewWith(cfg, func(spec *ebpf.CollectionSpec) error {
		p := spec.Programs[objects.NFProgNode]
		return b.surround(p, p, p)
	})
	if err != nil {
		return nil, errors.Join(err, b.Close())
	}
	b.prog = n.Objects().Node
	with := &EdgeNode{n, b}
	for _, c := range cfg.Chains {
		for way := range 2 {
			first := uint32((c.Service*2 + way) * (topo.MaxChain + 1)) // CHAIN_PROGRAMS of bpf/edge/function.h
			if err := n.Objects().NodeFunctions.Put(first, n.Objects().NodeOut); err != nil {
				return nil, errors.Join(fmt.Errorf("leave out the functions of service %d: %w", c.Service, err), with.Close())
			}
		}
	}
	return with, nil
}

// Close frees both.
func (b *EdgeNode) Close() error { return errors.Join(b.Node.Close(), b.Bench.Close()) }
