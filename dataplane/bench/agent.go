package bench

import (
	"errors"

	"github.com/cilium/ebpf"

	"proffer/dataplane/agent"
	"proffer/dataplane/objects"
	"proffer/topo"
)

// Agent is an agent with its programs in a bench instead of on a link.
type Agent struct {
	*agent.Agent
	*Bench // the program of XDP
}

// NewAgent loads the agent of cfg as NewAgent does.
func NewAgent(cfg *topo.Agent) (*Agent, error) {
	b, err := newBench(0)
	if err != nil {
		return nil, err
	}
	a, err := agent.NewWith(cfg, func(spec *ebpf.CollectionSpec) error {
		in, out := spec.Programs[objects.AgentProgAgentIn], spec.Programs[objects.AgentProgAgentOut]
		return errors.Join(asOnNIC(spec), b.surround(in, in, in), b.surround(out, out, out))
	})
	if err != nil {
		return nil, errors.Join(err, b.Close())
	}
	b.prog = a.Objects().AgentIn
	return &Agent{a, b}, nil
}

// Out is the bench of the program on the way out, with the same tables.
func (b *Agent) Out() *Bench {
	out := *b.Bench
	out.prog = b.Objects().AgentOut
	return &out
}

// Close frees both.
func (b *Agent) Close() error { return errors.Join(b.Agent.Close(), b.Bench.Close()) }
