package storms

import (
	"proffer/lab/farmrun"
	"proffer/lab/testbed"
	"proffer/topo"
)

// Ports of the services that some experiments have beside the web's.
const (
	echoPort = 22
	bulkPort = 873
)

// beside adds services on other ports of the VIP, otherwise like the first.
func beside(s farmrun.Settings, services map[string]uint16) farmrun.Settings {
	lbHook, agentHook := s.LB, s.Agent
	s.LB = func(lb *topo.LB) {
		if lbHook != nil {
			lbHook(lb)
		}
		for name, port := range services {
			more := lb.Services[0]
			more.Name, more.VIP.Port = name, port
			lb.Services = append(lb.Services, more)
		}
	}
	s.Agent = func(n *testbed.Node, agent *topo.Agent) {
		if agentHook != nil {
			agentHook(n, agent)
		}
		for name, port := range services {
			more := agent.Services[0]
			more.Name, more.VIP.Port = name, port
			agent.Services = append(agent.Services, more)
		}
	}
	return s
}
