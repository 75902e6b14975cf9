package config

import (
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
	maxEdgePrefixes = 64          // of a service, and of public ones
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
		completeEdge(lb)
		checkEdge(doc, lb)
	}
	if err := doc.Err(); err != nil {
		return nil, err
	}
	return lb, nil
}

// edgeFile is the table of an edge LB's file.
func edgeFile(lb *topo.EdgeLB) []schema.Entry {
	return []schema.Entry{
		schema.Optional("name", "edge", schema.Name().Into(&lb.Name)),
		schema.Optional("control", "/run/proffer/edge.sock", socket().Into(&lb.Control)),
		schema.Need("flow_key", flowKey().Secret(&lb.Key)),
		schema.Optional("report_key", "", reportKey().Secret(&lb.ReportKey)),
		schema.Need("clients", link().Into(&lb.Clients)),
		schema.Need("world", link().Into(&lb.World)),
		schema.Optional("balancer", "model", schema.OneOf(topo.Balances()...).Into(&lb.Balance)),
		schema.Optional("public", "", network().List(&lb.Public, maxEdgePrefixes)),
		schema.Optional("recovery", "tcp", schema.OneOf[word]("tcp", "all").Set(func(w word) { lb.RecoverAll = w == "all" })),
		schema.Optional("flow_table", "{}", schema.Mapping([]schema.Entry{
			schema.Optional("entries", "262144", flows().Into(&lb.Flows.Entries)),
			schema.Optional("idle", "5m", schema.Within(time.Second, 24*time.Hour).Into(&lb.Flows.Idle)),
		})),
		schema.Optional("replica", "", schema.Mapping([]schema.Entry{
			schema.Need("start", argument().List(&lb.StartReplica, maxArguments)),
		})),
		schema.Need("nodes", schema.Sequence(&lb.Nodes, 1, topo.MaxEdgeServers, edgeNode)),
		schema.Need("services", schema.Sequence(&lb.Services, 1, topo.MaxEdgeServices-1, edgeService)),
	}
}

func edgeNode(n *topo.EdgeNode) []schema.Entry {
	return []schema.Entry{
		schema.Need("name", schema.Name().Into(&n.Name)),
		schema.Need("number", nodeNumber().Into(&n.Server)),
		schema.Need("address", hostAddress("node").Into(&n.Addr)),
		schema.Need("link", link().Into(&n.Link)),
		schema.Optional("cores", "1", nodeCores().Into(&n.Cores)),
		schema.Optional("weight", "1", schema.Whole(0, maxWeight).Into(&n.Weight)),
	}
}

func edgeService(s *topo.EdgeService) []schema.Entry {
	return []schema.Entry{
		schema.Need("number", serviceNumber().Into(&s.Number)),
		schema.Need("prefixes", network().List(&s.Prefixes, maxEdgePrefixes)),
		schema.Optional("cost", "", schema.Within(time.Nanosecond, dearest).Into(&s.Cost)),
	}
}

func nodeNumber() schema.Kind[int]    { return schema.Whole(0, topo.MaxEdgeServers-1) }
func nodeCores() schema.Kind[int]     { return schema.Whole(1, topo.MaxEdgeCores) }
func serviceNumber() schema.Kind[int] { return schema.Whole(1, topo.MaxEdgeServices-1) }

func flowKey() schema.Kind[topo.Key] {
	return hexKey("32 hex digits, the same on every edge LB; make one with `openssl rand -hex 16`")
}

// reportKey is a key that may be absent.
func reportKey() schema.Kind[*topo.Key] {
	const want = "32 hex digits, the same on every edge LB and node; make one with `openssl rand -hex 16`"
	return schema.TextOrNumber(want, func(s string) (*topo.Key, error) {
		key, err := hexKey(want).Read(s)
		return &key, err
	})
}

// argument is a word of a command.
func argument() schema.Kind[string] {
	return schema.Text("a word of a command, of 1 to 4095 bytes, a number in quotes", func(s string) (string, error) {
		if s == "" || len(s) > 4095 || strings.ContainsRune(s, 0) {
			return "", schema.ErrNot
		}
		return s, nil
	})
}

// network is a prefix of either family.
func network() schema.Kind[netip.Prefix] {
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
	})
}

// completeEdge gives each service its instances.
func completeEdge(lb *topo.EdgeLB) {
	for i := range lb.Services {
		s := &lb.Services[i]
		for _, n := range lb.Nodes {
			for core := range n.Cores {
				s.Instances = append(s.Instances, topo.EdgeInstance{Server: n.Server, Core: core, Weight: float64(n.Weight)})
			}
		}
	}
}

// checkEdge finds the mistakes of an edge LB's file that no single value shows.
func checkEdge(d *schema.Document, lb *topo.EdgeLB) {
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
