package dataplane

import (
	"fmt"

	"github.com/cilium/ebpf"
)

// Verified is how many instructions of a packet's program the kernel's verifier went
// through when it was loaded: its patience ends at a million.
type Verified struct {
	Program      string
	Instructions uint32
}

// Verified tells it of the LB's program.
func (l *LB) Verified() ([]Verified, error) {
	return verified(map[string]*ebpf.Program{lbProgLb: l.objs.Lb}, lbProgLb)
}

// Verified tells it of the agent's programs.
func (a *Agent) Verified() ([]Verified, error) {
	return verified(map[string]*ebpf.Program{
		agentProgAgentIn: a.objs.AgentIn, agentProgAgentOut: a.objs.AgentOut,
	}, agentProgAgentIn, agentProgAgentOut)
}

func verified(programs map[string]*ebpf.Program, names ...string) (all []Verified, err error) {
	for _, name := range names {
		info, err := programs[name].Info()
		if err != nil {
			return nil, fmt.Errorf("ask the kernel about program %s: %w", name, err)
		}
		n, known := info.VerifiedInstructions()
		if !known {
			return nil, fmt.Errorf("this kernel does not say what its verifier did with program %s", name)
		}
		all = append(all, Verified{name, n})
	}
	return all, nil
}
