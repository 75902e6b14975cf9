package config

import (
	"proffer/schema"
	"proffer/topo"
)

// agentFile is the table of the file of a server's agent.
func agentFile(a *topo.Agent) []schema.Entry {
	n := &a.Node
	return []schema.Entry{
		schema.Need("node", schema.Mapping(node(n, "agent", "5f00:0:2:1::/64", schema.Need("name", schema.Name().Into(&n.Name),
			"Name in counters and logs.").Eg("s1"))), "This machine in the SR domain."),
		control("agent", &n.Control),
		signalKeys(n),
		schema.Optional("flow_table", "{}", schema.Mapping(flowTable(&a.Flows, "65536", schema.Duration(),
			schema.Optional("embryonic", "16384", FlowCount().Into(&a.Flows.Embryonic),
				"Flows in their handshake that the table has room for, beside entries."))),
			"Bounds of the flows that this agent remembers."),
		schema.Need("services", schema.Sequence(&a.Services, 1, topo.MaxOffered, offering), "The services that this server takes connections of."),
	}
}

// offering has no fallback for some keys: a name is the VIP and port, the cores
// are those of the machine, the MAC is that of its link, a page keeps its owner, group and mode,
// and where a load is read from depends on its source.
func offering(o *topo.Offering) []schema.Entry {
	wire := schema.Optional("wire", "encap", schema.OneOf(topo.Encap, topo.Insert).Into(&o.Wire),
		"As in the load balancers' file. insert only with an IPv6 vip.")
	return append(append(vipKeys(&o.Name, &o.VIP), wire), OfferingRows(o)...)
}

// OfferingRows are the keys of how a server takes connections of a service.
func OfferingRows(o *topo.Offering) []schema.Entry {
	adapting := schema.When("acceptance", having(topo.Acceptances(), topo.Acceptance.Adapts)...)
	decide := func(d decision) { o.Acceptance, o.Threshold = d.acceptance, d.threshold }
	own := func(w ownership) { o.Owner, o.Netns = w.owner, w.netns }
	return append([]schema.Entry{
		schema.Need("acceptance", acceptance().Set(decide, func() decision { return decision{o.Acceptance, o.Threshold} }),
			"How an offer that could be passed on is decided."),
		adapting.Optional("dynamic", "{}", schema.Mapping(dynamic(o)), "How the threshold adapts."),
		schema.Optional("workers", "32", schema.Whole(1, 65535).Into(&o.Workers), "Requests the server works on at once: dynamic's largest threshold."),
		schema.Optional("cores", "", schema.Whole(1, 65535).Into(&o.Cores),
			"At most so many accepted connections that have not arrived count as load; the number of CPUs when absent.").Eg("2"),
	}, append(loads(o),
		schema.Optional("on_full", "rst", schema.OneOf(topo.Reset, topo.Drop).Into(&o.OnFull),
			"A full accept queue at the last candidate. rst: reset the connection. drop: leave the client to retransmit."),
		schema.Optional("owner", "socket", owner().Set(own, func() ownership { return ownership{o.Owner, o.Netns} }),
			"Where a flow's owner is looked up. socket: in the agent's network namespace. netns PATH: in another one. table: in its own table, as the sockets are out of sight."),
		schema.When("owner", topo.Table.String()).Optional("mac", "", LinkAddress().Into(&o.MAC),
			"Link address that the vip answers at, if not this host's (macvlan)."))...)
}

// loads are the keys of the measure of load, and of the program that it is read from.
func loads(o *topo.Offering) []schema.Entry {
	all := topo.Loads()
	asking, parted := schema.When("load", having(all, topo.Load.From)...), schema.When("load", having(all, topo.Load.Of)...)
	paging := schema.When("load", having(all, topo.Load.File)...)
	reads := func(l topo.Load) { o.Measure, o.Source = l.Measure, l.Source }
	return []schema.Entry{
		schema.Optional("load", "work", schema.OneOf(all...).Telling(told(all, topo.Load.String, topo.Load.Meaning)).Set(reads, o.Load), "The measure of load."),
		asking.Optional("load_from", "", endpoint().Into(&o.From),
			"Where the load is read. apache: httpd's PID file, /run/apache2/apache2.pid when absent; required with the others."),
		parted.Optional("load_of", "", part().Into(&o.Of),
			"php-fpm: pm.status_path, /status when absent. haproxy: a backend. envoy: a stat_prefix. prometheus: a metric, with labels or without."),
		paging.Need("page", page().Into(&o.Page), "The page, or unix: and the socket that hands it over."),
		paging.Optional("page_owner", "", account("user").Into(&o.PageOwner), "The page's user. Default: as it is; of a new page the agent's."),
		paging.Optional("page_group", "", account("group").Into(&o.PageGroup), "The page's group. Default: as it is; of a new page the agent's."),
		paging.Optional("page_mode", "", permissions().Into(&o.PageMode), "The page's permissions. Default: as it is; of a new page 0660."),
	}
}

// dynamic holds the parameters of 6LB Algorithm 2.
func dynamic(o *topo.Offering) []schema.Entry {
	return []schema.Entry{
		schema.Optional("window", "50", schema.Whole(1, 65535).Into(&o.Window), "Offers between two adaptations."),
		schema.Optional("epsilon", "0.1", schema.Fraction(0, 0.5).Into(&o.Epsilon),
			"Half the width of the band around 1/2 in which the accepted share changes nothing."),
		schema.Optional("initial", "1", schema.Whole(0, 65535).Into(&o.Threshold), "First threshold; at most workers."),
	}
}
