package config

import (
	"proffer/schema"
	"proffer/topo"
)

// agentFile is the table of the file of a server's agent.
func agentFile(a *topo.Agent) []schema.Entry {
	n := &a.Node
	return []schema.Entry{
		schema.Need("node", schema.Mapping(node(n, schema.Need("name", schema.Name().Into(&n.Name))))),
		schema.Optional("control", "/run/proffer/agent.sock", socket().Into(&n.Control)),
		signalKeys(n),
		schema.Optional("flow_table", "{}", schema.Mapping(flowTable(&a.Flows, "65536", schema.Duration(),
			schema.Optional("embryonic", "16384", flows().Into(&a.Flows.Embryonic))))),
		schema.Need("services", schema.Sequence(&a.Services, 1, topo.MaxOffered, offering)),
	}
}

// offering has no fallback for some keys: a name is the VIP and port, the cores
// are those of the machine, the MAC is that of its link, a page keeps its owner, group and mode,
// and where a load is read from depends on its source.
func offering(o *topo.Offering) []schema.Entry {
	adapting := onlyWith("acceptance", topo.Acceptances(), topo.Acceptance.Adapts, &o.Acceptance)
	load := &topo.Load{}
	reads := func(l topo.Load) { *load, o.Measure, o.Source = l, l.Measure, l.Source }
	paging := onlyWith("load", topo.Loads(), topo.Load.File, load)
	asking := onlyWith("load", topo.Loads(), topo.Load.From, load)
	parted := onlyWith("load", topo.Loads(), topo.Load.Of, load)
	unseen := schema.When("owner: table", func() bool { return o.Owner == topo.Table })
	decide := func(d decision) { o.Acceptance, o.Threshold = d.acceptance, d.threshold }
	own := func(w ownership) { o.Owner, o.Netns = w.owner, w.netns }
	return []schema.Entry{
		schema.Optional("name", "", schema.Name().Into(&o.Name)),
		schema.Need("vip", vip().Into(&o.VIP.Addr)),
		schema.Optional("protocol", "tcp", schema.OneOf(topo.TCP, topo.UDP).Into(&o.VIP.Protocol)),
		port(&o.VIP.Port),
		schema.Optional("wire", "encap", schema.OneOf(topo.Encap, topo.Insert).Into(&o.Wire)),
		schema.Need("acceptance", acceptance().Set(decide)),
		adapting.Optional("dynamic", "{}", schema.Mapping(dynamic(o))),
		schema.Optional("workers", "32", schema.Whole(1, 65535).Into(&o.Workers)),
		schema.Optional("cores", "", schema.Whole(1, 65535).Into(&o.Cores)),
		schema.Optional("load", "work", schema.OneOf(topo.Loads()...).Set(reads)),
		asking.Optional("load_from", "", endpoint().Into(&o.From)),
		parted.Optional("load_of", "", part().Into(&o.Of)),
		paging.Need("page", page().Into(&o.Page)),
		paging.Optional("page_owner", "", account("user").Into(&o.PageOwner)),
		paging.Optional("page_group", "", account("group").Into(&o.PageGroup)),
		paging.Optional("page_mode", "", permissions().Into(&o.PageMode)),
		schema.Optional("on_full", "rst", schema.OneOf(topo.Reset, topo.Drop).Into(&o.OnFull)),
		schema.Optional("owner", "socket", owner().Set(own)),
		unseen.Optional("mac", "", mac().Into(&o.MAC)),
	}
}

// dynamic holds the parameters of 6LB Algorithm 2.
func dynamic(o *topo.Offering) []schema.Entry {
	return []schema.Entry{
		schema.Optional("window", "50", schema.Whole(1, 65535).Into(&o.Window)),
		schema.Optional("epsilon", "0.1", schema.Fraction(0, 0.5).Into(&o.Epsilon)),
		schema.Optional("initial", "1", schema.Whole(0, 65535).Into(&o.Threshold)),
	}
}
