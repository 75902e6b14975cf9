package dataplane

import (
	"errors"

	"github.com/cilium/ebpf"

	"proffer/topo"
)

// BenchAgent is an agent whose programs run in a bench instead of on a link.
type BenchAgent struct {
	*Agent
	*Bench // the program of XDP
}

// NewBenchAgent loads the agent of cfg as NewAgent does.
func NewBenchAgent(cfg *topo.Agent) (*BenchAgent, error) {
	b, err := newBench(0)
	if err != nil {
		return nil, err
	}
	a, err := newAgent(cfg, func(spec *ebpf.CollectionSpec) error {
		return errors.Join(asOnNIC(spec), b.surround(spec.Programs[agentProgAgentIn]), b.surround(spec.Programs[agentProgAgentOut]))
	})
	if err != nil {
		return nil, errors.Join(err, b.Close())
	}
	b.prog = a.objs.AgentIn
	return &BenchAgent{a, b}, nil
}

// Out is the bench of the program on the way out, with the same tables.
func (b *BenchAgent) Out() *Bench {
	out := *b.Bench
	out.prog = b.objs.AgentOut
	return &out
}

// Close frees both.
func (b *BenchAgent) Close() error { return errors.Join(b.Agent.Close(), b.Bench.Close()) }
