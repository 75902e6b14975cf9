package config

import "proffer/topo"

// agentFile is the table of the file of a server's agent.
func agentFile(a *topo.Agent) []entry {
	return []entry{
		need("node", mapping(agentNode(&a.Node))),
		optional("control", "/run/proffer/agent.sock", scalar(&a.Control, socket())),
		optional("flow_table", "{}", mapping(flowTable(&a.Flows, "65536"))),
		need("services", sequence(&a.Services, 1, MaxServices, offering)),
	}
}

func agentNode(n *topo.Node) []entry {
	return []entry{
		need("name", scalar(&n.Name, name())),
		need("locator", scalar(&n.Locator, locator())),
		need("interface", scalar(&n.Interface, link())),
	}
}

// offering has no fallback for two keys: a name is the VIP and port, the cores
// are those of the machine.
func offering(o *topo.Offering) []entry {
	adapting := &condition{"acceptance: dynamic", func() bool { return o.Acceptance == topo.Dynamic }}
	sharing := &condition{"signal: shm", func() bool { return o.Signal == topo.SharedMemory }}
	decide := func(d decision) { o.Acceptance, o.Threshold = d.acceptance, d.threshold }
	return []entry{
		optional("name", "", scalar(&o.Name, name())),
		need("vip", scalar(&o.VIP.Addr, vip())),
		need("port", scalar(&o.VIP.Port, port())),
		need("acceptance", assign(acceptance(), decide)),
		adapting.optional("dynamic", "{}", mapping(dynamic(o))),
		optional("workers", "32", scalar(&o.Workers, whole(1, 65535))),
		optional("cores", "", scalar(&o.Cores, whole(1, 65535))),
		optional("signal", "busy", scalar(&o.Signal, oneOf(topo.Busy, topo.Sockets, topo.SharedMemory))),
		sharing.need("page", scalar(&o.Page, page())),
		optional("on_full", "rst", scalar(&o.OnFull, oneOf(topo.Reset, topo.Drop))),
	}
}

// dynamic holds the parameters of 6LB Algorithm 2.
func dynamic(o *topo.Offering) []entry {
	return []entry{
		optional("window", "50", scalar(&o.Window, whole(1, 65535))),
		optional("epsilon", "0.1", scalar(&o.Epsilon, fraction(0, 0.5))),
		optional("initial", "1", scalar(&o.Threshold, whole(0, 65535))),
	}
}
