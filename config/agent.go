package config

import "proffer/topo"

// agentFile is the table of the file of a server's agent.
func agentFile(a *topo.Agent) []entry {
	n := &a.Node
	return []entry{
		need("node", mapping(node(n, need("name", scalar(&n.Name, name()))))),
		optional("control", "/run/proffer/agent.sock", scalar(&n.Control, socket())),
		signalKeys(n),
		optional("flow_table", "{}", mapping(flowTable(&a.Flows, "65536", duration(),
			optional("embryonic", "16384", scalar(&a.Flows.Embryonic, flows()))))),
		need("services", sequence(&a.Services, 1, topo.MaxOffered, offering)),
	}
}

// offering has no fallback for three keys: a name is the VIP and port, the cores
// are those of the machine, the MAC is that of its link.
func offering(o *topo.Offering) []entry {
	adapting := onlyWith("acceptance", topo.Acceptances(), topo.Acceptance.Adapts, &o.Acceptance)
	paging := onlyWith("load", topo.Measures(), topo.Measure.Page, &o.Measure)
	unseen := &condition{"owner: table", func() bool { return o.Owner == topo.Table }}
	decide := func(d decision) { o.Acceptance, o.Threshold = d.acceptance, d.threshold }
	own := func(w ownership) { o.Owner, o.Netns = w.owner, w.netns }
	return []entry{
		optional("name", "", scalar(&o.Name, name())),
		need("vip", scalar(&o.VIP.Addr, vip())),
		optional("protocol", "tcp", scalar(&o.VIP.Protocol, oneOf(topo.TCP, topo.UDP))),
		need("port", scalar(&o.VIP.Port, port())),
		need("acceptance", assign(acceptance(), decide)),
		adapting.optional("dynamic", "{}", mapping(dynamic(o))),
		optional("workers", "32", scalar(&o.Workers, whole(1, 65535))),
		optional("cores", "", scalar(&o.Cores, whole(1, 65535))),
		optional("load", "busy", scalar(&o.Measure, oneOf(topo.Measures()...))),
		paging.need("page", scalar(&o.Page, page())),
		optional("on_full", "rst", scalar(&o.OnFull, oneOf(topo.Reset, topo.Drop))),
		optional("owner", "socket", assign(owner(), own)),
		unseen.optional("mac", "", scalar(&o.MAC, mac())),
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
