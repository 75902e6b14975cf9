package config

import (
	"encoding/hex"
	"fmt"
	"net/netip"
	"path"
	"strings"
	"time"

	"proffer/schema"
	"proffer/topo"
)

// Limits of an edge LB's file.
const (
	maxEdgePrefixes = 64          // of a service, and of public prefixes
	maxArguments    = 64          // of a command, its program included
	dearest         = time.Second // cost of a packet, beyond which a measurement has failed
)

// ParseEdge reads the configuration of an edge LB. Each core of each node has an instance of each
// service, the cores in the order of the file. Errors are as of ParseLB.
func ParseEdge(file string, data []byte) (*topo.EdgeLB, error) {
	lb := new(topo.EdgeLB)
	doc := &schema.Document{File: file}
	doc.Parse(data, edgeFile(lb))
	if doc.OK() {
		CompletePin(&lb.Pin, "edge", lb.Name)
		CompleteEdge(lb)
		CheckEdge(doc, lb)
	}
	if err := doc.Err(); err != nil {
		return nil, err
	}
	return lb, nil
}

// edgeFile is the table of an edge LB's file.
func edgeFile(lb *topo.EdgeLB) []schema.Entry {
	return []schema.Entry{
		schema.Optional("name", "edge", schema.Name().Into(&lb.Name), "Name in counters and logs."),
		control("edge", &lb.Control),
		pinRow("edge", &lb.Pin),
		schema.Need("flow_key", FlowKey().Secret(&lb.Key),
			"Secret of the digests of flows: the same on every edge LB. Make it with `openssl rand -hex 16`; put it in quotes."),
		schema.Optional("report_key", "", ReportKey().Secret(&lb.ReportKey),
			"Secret of the reports of nodes: the same on every edge LB and node; without it nodes report nothing. Make it as flow_key."),
		schema.Need("clients", Link().Into(&lb.Clients), "Interface to the client network."),
		schema.Need("world", Link().Into(&lb.World), "Interface to the world.").Eg("eth1"),
		schema.Optional("balancer", "model", schema.OneOf(topo.Balances()...).Into(&lb.Balance),
			"Weights of cores. model: predicted loads are levelled. monitor: reported loads are. wrr: the weights of the nodes."),
		schema.Optional("public", "", Network().List(&lb.Public, maxEdgePrefixes),
			"Addresses that functions give to flows: the world begins none there.").Eg("[203.0.113.1/32]"),
		schema.Optional("recovery", "tcp", schema.YesNo("tcp", "all").Into(&lb.RecoverAll),
			"Packets without an entry that nodes are asked about. tcp: those that begin no flow. all: for LBs that share traffic."),
		schema.Optional("flow_table", "{}", schema.Mapping([]schema.Entry{
			schema.Optional("entries", "262144", FlowCount().Into(&lb.Flows.Entries), "Flows remembered at once, twice those that functions change."),
			schema.Optional("idle", "5m", schema.Within(time.Second, 24*time.Hour).Into(&lb.Flows.Idle), "A flow without packets for this long is forgotten."),
		}), "Bounds of the flows that this LB remembers."),
		schema.Optional("replica", "", schema.Mapping([]schema.Entry{
			schema.Need("start", Argument().List(&lb.StartReplica, maxArguments),
				"The command that starts another node, without a shell."),
		}), "What an LB does when its nodes are full."),
		schema.Need("nodes", schema.Sequence(&lb.Nodes, 1, topo.MaxEdgeServers, edgeNode), "The datapath nodes."),
		schema.Need("services", schema.Sequence(&lb.Services, 1, topo.MaxEdgeServices-1, edgeService),
			"Chains of functions."),
	}
}

func edgeNode(n *topo.EdgeNode) []schema.Entry {
	return []schema.Entry{
		schema.Need("name", schema.Name().Into(&n.Name), "Name in counters and logs.").Eg("n1"),
		schema.Need("number", NodeNumber().Into(&n.Server), "Number of the node, the same in its own file.").Eg("1"),
		schema.Need("address", HostAddress("node").Into(&n.Addr), "Address of the node on the link.").Eg("192.0.2.2"),
		schema.Need("link", Link().Into(&n.Link), "Interface to the node.").Eg("eth2"),
		schema.Optional("cores", "1", NodeCores().Into(&n.Cores), "Cores of the node, the same as in its own file."),
		schema.Optional("weight", "1", schema.Whole(0, maxWeight).Into(&n.Weight),
			"Weight of each of its cores with balancer: wrr. 0 drains the node."),
	}
}

func edgeService(s *topo.EdgeService) []schema.Entry {
	return []schema.Entry{
		schema.Need("number", ChainNumber().Into(&s.Number), "Number of the chain, the same in the nodes' files.").Eg("1"),
		schema.Need("prefixes", Network().List(&s.Prefixes, maxEdgePrefixes),
			"Prefixes of the client network that the chain is for; the longest decides.").Eg(clientNetwork),
		schema.Optional("cost", "", schema.Within(time.Nanosecond, dearest).Into(&s.Cost), "Time of a packet; without it the nodes measure it.").Eg("3us"),
	}
}

// clientNetwork is that of the examples.
const clientNetwork = `[10.1.0.0/16, "2001:db8:1::/48"]`

func NodeNumber() schema.Kind[int]  { return schema.Whole(0, topo.MaxEdgeServers-1) }
func NodeCores() schema.Kind[int]   { return schema.Whole(1, topo.MaxEdgeCores) }
func ChainNumber() schema.Kind[int] { return schema.Whole(1, topo.MaxEdgeServices-1) }

func FlowKey() schema.Kind[topo.Key] {
	return HexKey("32 hex digits, the same on every edge LB; make one with `openssl rand -hex 16`")
}

// ReportKey is a key that may be absent.
func ReportKey() schema.Kind[*topo.Key] {
	const want = "32 hex digits, the same on every edge LB and node; make one with `openssl rand -hex 16`"
	return schema.TextOrNumber(want, func(s string) (*topo.Key, error) {
		key, err := HexKey(want).Read(s)
		return &key, err
	}).Spelt(func(k *topo.Key) string {
		if k == nil {
			return ""
		}
		return hex.EncodeToString(k[:])
	}).Like(hexDigits).Eg(`"0f0e0d0c0b0a09080706050403020100"`)
}

// Argument is a word of a command.
func Argument() schema.Kind[string] {
	return schema.Text("a word of a command, of 1 to 4095 bytes, a number in quotes", func(s string) (string, error) {
		if s == "" || len(s) > 4095 || strings.ContainsRune(s, 0) {
			return "", schema.ErrNot
		}
		return s, nil
	}).Eg("/usr/local/sbin/start-node")
}

// Network is a prefix of either family.
func Network() schema.Kind[netip.Prefix] {
	const want = "an IPv4 or IPv6 prefix such as 10.1.0.0/16 or 2001:db8:1::/48"
	return schema.Text(want, func(s string) (netip.Prefix, error) {
		p, err := netip.ParsePrefix(s)
		switch {
		case err != nil:
			return p, schema.ErrNot
		case p != p.Masked():
			return p, fmt.Errorf("has bits behind the prefix (write %s)", p.Masked())
		}
		return p, nil
	}).Like(anyPrefix)
}

// CompleteEdge gives each service its instances.
func CompleteEdge(lb *topo.EdgeLB) {
	for i := range lb.Services {
		s := &lb.Services[i]
		for _, n := range lb.Nodes {
			for core := range n.Cores {
				s.Instances = append(s.Instances, topo.EdgeInstance{Server: n.Server, Core: core, Weight: float64(n.Weight)})
			}
		}
	}
}

// CheckEdge finds the mistakes of an edge LB's file that no single value shows.
func CheckEdge(d *schema.Document, lb *topo.EdgeLB) {
	if lb.World == lb.Clients {
		d.Failf("world", "%q is the link to the client network (line %d), too; want another one", lb.World, d.Line("clients"))
	}
	if start := lb.StartReplica; len(start) > 0 && !path.IsAbs(start[0]) {
		d.Failf("replica.start[0]", "%q is no absolute path; want that of a program, as the daemon has no search path", start[0])
	}
	checkEdgeNodes(d, lb)
	checkReports(d, lb)
	prefixes, numbers := unique[netip.Prefix]{}, unique[int]{}
	for i, s := range lb.Services {
		at := fmt.Sprintf("services[%d]", i)
		numbers.add(d, at+".number", s.Number)
		for j, p := range s.Prefixes {
			prefixes.add(d, fmt.Sprintf("%s.prefixes[%d]", at, j), p)
		}
	}
	public := unique[netip.Prefix]{}
	for i, p := range lb.Public {
		public.add(d, fmt.Sprintf("public[%d]", i), p)
		for j, s := range lb.Services {
			checkPublic(d, fmt.Sprintf("public[%d]", i), p.Addr(), p.Bits(), s.Prefixes, fmt.Sprintf("services[%d].prefixes", j))
		}
	}
}

// checkReports: without reports costs are stated, and no load is known.
func checkReports(d *schema.Document, lb *topo.EdgeLB) {
	if lb.ReportKey != nil {
		return
	}
	if lb.Balance == topo.ByMonitor {
		d.Failf("balancer", "\"monitor\" needs the loads that nodes report; want a report_key, here and in the nodes' files")
	}
	for i, s := range lb.Services {
		if s.Cost == 0 {
			d.Failf(fmt.Sprintf("services[%d].cost", i), "is missing, and without a report_key no node reports it; want either")
		}
	}
}

func checkEdgeNodes(d *schema.Document, lb *topo.EdgeLB) {
	names, numbers, addresses, cores := unique[string]{}, unique[int]{}, unique[netip.Addr]{}, 0
	for i, n := range lb.Nodes {
		at := fmt.Sprintf("nodes[%d]", i)
		names.add(d, at+".name", n.Name)
		numbers.add(d, at+".number", n.Server)
		addresses.add(d, at+".address", n.Addr)
		if n.Link == lb.Clients || n.Link == lb.World {
			d.Failf(at+".link", "%q is the link to the client network or the world; want a link of the nodes alone", n.Link)
		}
		cores += n.Cores
	}
	if cores > topo.MaxRows || cores*len(lb.Services) >= topo.MaxInstances {
		d.Failf("nodes", "have %d cores together, for %d services; want at most %d, and fewer than %d times services",
			cores, len(lb.Services), topo.MaxRows, topo.MaxInstances)
	}
}
