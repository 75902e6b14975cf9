package control

import (
	"fmt"

	"proffer/report"
	"proffer/topo"
)

// nodeHas is the part of the configuration that a node has, by its reports.
type nodeHas struct {
	cores    int          // 0: it has reported none
	lacks    map[int]bool // services without a chain
	loadless bool         // it does not measure the loads of its cores
}

// take takes a report. It reports whether cores or chains are others than before.
func (h *nodeHas) take(m *report.NodeMessage) (changed bool) {
	changed = h.cores != m.Cores || h.lacks[m.Service] != m.NoChain
	h.cores, h.lacks[m.Service], h.loadless = m.Cores, m.NoChain, m.Busy == nil
	return changed
}

// Cores is the number of cores that a node of the configuration has of those that its entry names.
func (p *NodePoller) Cores(node int) int {
	stated := p.cfg.Nodes[node].Cores
	if has := p.nodes[node].has.cores; has > 0 && has < stated {
		return has
	}
	return stated
}

// Lacks reports whether a node has no chain of a service.
func (p *NodePoller) Lacks(node, service int) bool { return p.nodes[node].has.lacks[service] }

// Reshaped reports whether a node's cores or chains changed since the last call.
func (p *NodePoller) Reshaped() bool {
	reshaped := p.reshaped
	p.reshaped = false
	return reshaped
}

// Problems lists the differences between the configuration and the nodes.
func (p *NodePoller) Problems() (all []string) {
	for i, n := range p.cfg.Nodes {
		has := &p.nodes[i].has
		if has.cores != 0 && has.cores != n.Cores {
			all = append(all, fmt.Sprintf("node %s reports cores: %d, and this file has cores: %d: a core that is not in both gets no flows", n.Name, has.cores, n.Cores))
		}
		for _, s := range p.cfg.Services {
			if has.lacks[s.Number] {
				all = append(all, fmt.Sprintf("node %s has no chain of service %d, or drains: it gets no new flows of it", n.Name, s.Number))
			}
		}
		if has.loadless && p.cfg.Balance == topo.ByMonitor {
			all = append(all, fmt.Sprintf("node %s measures no loads of its cores: balancer monitor levels them by predictions", n.Name))
		}
	}
	return all
}
