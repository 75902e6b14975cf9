package farm

import (
	"time"

	"proffer/config"
	"proffer/schema"
	"proffer/topo"
)

// Limits of a farm's file.
const (
	mostNodes = config.MaxServers + 256
	mostAddrs = 64 // of a service
	mostPorts = 64 // … and ports or ranges at each
)

// table is that of the farm's file.
func table(f *Farm) []schema.Entry {
	return []schema.Entry{
		schema.Need("farm", schema.Name().Into(&f.Name), "Name of the farm, which its secrets have, too.").Eg("shop"),
		schema.Optional("version", "0", config.PoolNumber().Into(&f.Version), "Number of this file; it rises with every change, and no node goes back to a lower one.").Eg("7"),
		schema.Optional("domain", "", domainOf(f),
			"Prefixes of the SR domain: SR packets from elsewhere are dropped. any: none is. Default: 5f00::/16 if it holds all locators, else the /48 of each.").Eg(`["5f00:0:1::/48", "5f00:0:2::/48"]`, "any"),
		schema.Need("nodes", schema.Named(&f.Nodes, 1, mostNodes, schema.Name(), func(n *Node) *string { return &n.Name }, node, "lb1", "s1", "gw1", "n1"),
			"The machines, by name. A node finds itself by its host's name, or by --name."),
		schema.Optional("services", "", schema.Named(&f.Services, 1, topo.MaxServices, schema.Name(), func(s *Service) *string { return &s.Name }, service, "web"),
			"The services of the LBs, by name: each is one pool behind its addresses and ports."),
		schema.Optional("chains", "", schema.Named(&f.Chains, 1, topo.MaxEdgeServers-1, schema.Name(), func(c *Chain) *string { return &c.Name }, chain, "guard"),
			"The chains of functions of edge LBs and nfs, by name."),
	}
}

// domain is a list of prefixes, or the word for every address.
func domainOf(f *Farm) schema.Value {
	v := config.DomainPrefix().ListOr("any", &f.Domain, 16)
	return v.Marked(&f.Open)
}

// node has the role first; the other keys go with some of the roles.
func node(n *Node) []schema.Entry {
	signed, weighed, remember := schema.Having("lb", "server"), schema.Having("server", "nf"), schema.Having("lb", "server", "edge")
	lbs, servers, edges, nfs := schema.Having("lb"), schema.Having("server"), schema.Having("edge"), schema.Having("nf")
	tunnelled := schema.When("delivery", topo.ByVXLAN.String())
	return []schema.Entry{
		schema.Optional("lb", "", place("LB").Into(&n.LB), "A load balancer: its address. routed: packets go by the route of its locator.").Eg(`"2001:db8:1::1"`).Alternative(),
		schema.Optional("server", "", place("server").Into(&n.Server), "A server: its address. routed: packets go by the route of its locator.").Eg(`"2001:db8:2::1"`).Alternative(),
		schema.Optional("edge", "", place("edge LB").Into(&n.Edge), "An edge LB: its address on the link to the nfs.").Eg("192.0.2.1").Alternative(),
		schema.Optional("nf", "", place("nf").Into(&n.NF), "A datapath node: its address on the link to the edge LBs.").Eg("192.0.2.2").Alternative(),
		signed.Optional("locator", "", config.Locator().Into(&n.Locator), "Prefix of every SID of the node; needed but for delivery: l2 or vxlan.").Eg(`"5f00:0:1:1::/64"`, `"5f00:0:2:1::/64"`),
		weighed.Optional("weight", "1", config.Weight().Into(&n.Weight), "Its share of new flows; 0 drains it."),
		servers.Optional("delivery", "agent", config.Deliveries().OneOrList(&n.Deliveries, 2), "How the server gets its packets; dt6 or dx6, and dx4, together for services of both families."),
		tunnelled.Need("vni", config.VXLANNetwork().Into(&n.VNI), "VXLAN network of the server's vxlan device.").Eg("100"),
		tunnelled.Optional("mac", config.DeviceMAC, config.LinkAddress().Into(&n.MAC), "Link address of the server's vxlan device."),
		edges.Need("clients", config.Link().Into(&n.Clients), "Interface to the client network."),
		edges.Need("world", config.Link().Into(&n.World), "Interface to the world.").Eg("eth1"),
		edges.Optional("balancer", "model", schema.OneOf(topo.Balances()...).Into(&n.Balance),
			"Weights of cores. model: predicted loads are levelled. monitor: reported loads are. wrr: the weights of the nodes."),
		edges.Optional("recovery", "tcp", schema.YesNo("tcp", "all").Into(&n.RecoverAll),
			"Packets without an entry that nodes are asked about. tcp: those that begin no flow. all: those that may begin one, too; for LBs that share traffic."),
		edges.Optional("public", "", config.Network().List(&n.Public, 64), "Addresses that functions give to flows: the world begins none there. Default: those of the chains' NAT.").Eg("[203.0.113.1/32]"),
		edges.Optional("replica", "", config.Argument().List(&n.StartReplica, 64), "The command that starts another node when all are full: a program's absolute path, and its arguments."),
		nfs.Optional("number", "", config.NodeNumber().Set(func(v int) { n.Number = v + 1 }, func() int { return n.Number - 1 }),
			"Number of the node, which flows remember; its place among the nfs of the file when absent.").Eg("1"),
		nfs.Optional("cores", "1", config.NodeCores().Into(&n.Cores), "Cores of the node."),
		nfs.Optional("cpus", "shared", schema.YesNo("shared", "own").Into(&n.Spread), "own: core N is CPU N. shared: cores are the CPUs that packets come to."),
		nfs.Optional("edge_link", "", config.Link().Into(&n.EdgeLink), "Interface of the edge LBs to this node; their link when absent.").Eg("eth2"),
		nfs.Optional("prefixes", "", config.Network().List(&n.Prefixes, 64), "Prefixes of the client network; those of all chains when absent.").Eg("[10.1.0.0/16]"),
		nfs.Optional("first_port", "", schema.Whole(1024, 65472).Into(&n.NATPort), "First port of source NAT at this node, in the place of the chains' first_port: no two nodes have the same ports.").Eg("2048"),
		schema.Optional("link", "", config.Link().Into(&n.Link), "Interface that the programs are attached to, of an edge LB the link to the nfs; the one that has the node's address when absent.").Eg("eth0", "eth0", "eth2", "eth0"),
		schema.Optional("pin", "", config.PinFolder().Into(&n.Pin), "Directory in a BPF file system where links and flows outlive the daemon; /sys/fs/bpf/proffer/DAEMON-NAME when absent.").Eg("/sys/fs/bpf/proffer/lb-lb1", "/sys/fs/bpf/proffer/agent-s1", "/sys/fs/bpf/proffer/edge-gw1", "/sys/fs/bpf/proffer/nf-n1"),
		schema.Optional("control", "", config.Socket().Into(&n.Control), "Unix socket that answers `proffer status`; /run/proffer/DAEMON.sock when absent.").Eg("/run/proffer/lb.sock", "/run/proffer/agent.sock", "/run/proffer/edge.sock", "/run/proffer/nf.sock"),
		lbs.Optional("state", "", config.StateFile().Into(&n.State), "File that records the pools served; /var/lib/proffer/lb-NAME.json when absent.").Eg("/var/lib/proffer/lb-lb1.json"),
		remember.Optional("flows", "", config.FlowCount().Into(&n.Flows.Entries), "Flows remembered at once; 262144 at an LB or edge LB, 65536 at a server when absent.").Eg("262144", "65536", "262144"),
		schema.Optional("idle", "5m", schema.Within(1, topo.MaxAge).Into(&n.Flows.Idle), "A flow without packets for so long is forgotten; an open TCP connection that would be lost, after 2h4m at least."),
		schema.Having("lb", "server", "nf").Optional("linger", "10s", schema.Within(1, topo.MaxAge).Into(&n.Flows.Linger), "How long a closed flow is remembered."),
		servers.Optional("embryonic", "16384", config.FlowCount().Into(&n.Flows.Embryonic), "Flows in their handshake that the table has room for, beside flows."),
	}
}

// service has the keys of an LB's service and, as they are the same at all servers, of an agent's.
func service(s *Service) []schema.Entry {
	rows := []schema.Entry{
		schema.Need("vip", config.ClientAddress().OneOrList(&s.Addrs, mostAddrs), "IPv6 or IPv4 address of the service, or a list."),
		schema.Need("port", ports().OneOrList(&s.Ports, mostPorts), "Port of the service, a range, or a list; udp/ before it for UDP."),
	}
	for _, e := range config.ServiceRows(&s.Service) {
		if e.Key == "recovery" {
			e.Value = recoveries().Into(&s.Recovery)
		}
		rows = append(rows, e)
	}
	for _, e := range config.OfferingRows(&s.Accepts) {
		if e.Key == "acceptance" {
			e.Required, e.Fallback = false, "dynamic"
		}
		rows = append(rows, e)
	}
	return append(rows,
		schema.Need("servers", schema.ListedByName(&s.Members, config.MaxServers, s.member, memberRows),
			"The nodes that take flows of the service, each a name, or a mapping with what is its own."),
		schema.Optional("pool", "", config.PoolNumber().Set(func(v int) { s.Pool = v + 1 }, func() int { return s.Pool - 1 }),
			"Number of the pool, where it is not the farm's version.").Eg("2"),
		config.EarlierRow(&s.Service))
}

// member is a server that accepts as the service does.
func (s *Service) member() Member { return Member{Weight: -1, Accepts: s.Accepts} }

// memberRows have no fallbacks: what is absent is as the service has it.
func memberRows(m *Member) []schema.Entry {
	rows := []schema.Entry{
		schema.Need("name", schema.Name().Into(&m.Node), "Name of the node.").Eg("s1"),
		schema.Optional("weight", "", config.Weight().Into(&m.Weight), "Its weight in this service; the node's when absent.").Eg("1"),
	}
	for _, e := range config.OfferingRows(&m.Accepts) {
		if e.Key != "dynamic" || m.Accepts.Window > 0 { // the parameters of a service that has none are the usual ones
			e.Required, e.Fallback = false, ""
		}
		rows = append(rows, e)
	}
	return rows
}

func chain(c *Chain) []schema.Entry {
	return []schema.Entry{
		schema.Need("prefixes", config.Network().List(&c.Prefixes, 64), "Prefixes of the client network whose flows go through the chain; the longest prefix decides.").Eg(`[10.1.0.0/16, "2001:db8:1::/48"]`),
		schema.Optional("number", "", config.ChainNumber().Into(&c.Number), "Number of the chain, which flows remember; its place in the file when absent.").Eg("1"),
		schema.Optional("cost", "", schema.Within(time.Nanosecond, time.Second).Into(&c.Cost), "Time that a packet takes of a core. Without it the nodes measure it.").Eg("3us"),
		schema.Optional("functions", "", config.Functions(&c.Functions), "Functions, in the order that packets of the client network meet them; needed where the file has an nf."),
	}
}
