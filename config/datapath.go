package config

import (
	"fmt"
	"net/netip"
	"time"

	"proffer/schema"
	"proffer/topo"
)

// ParseDatapath reads the configuration of a datapath node. Errors are as of ParseLB.
func ParseDatapath(file string, data []byte) (*topo.Datapath, error) {
	n := new(topo.Datapath)
	doc := &schema.Document{File: file}
	doc.Parse(data, datapathFile(n))
	if doc.OK() {
		CompletePin(&n.Pin, "nf", n.Name)
		CheckDatapath(doc, n)
	}
	if err := doc.Err(); err != nil {
		return nil, err
	}
	return n, nil
}

// datapathFile is the table of a datapath node's file.
func datapathFile(n *topo.Datapath) []schema.Entry {
	return []schema.Entry{
		schema.Need("name", schema.Name().Into(&n.Name), "Name in counters and logs.").Eg("n1"),
		control("nf", &n.Control),
		pinRow("nf", &n.Pin),
		schema.Need("number", NodeNumber().Into(&n.Server), "Number of the node, the same in the LBs' files.").Eg("1"),
		schema.Need("link", Link().Into(&n.Link), "Interface to the LBs."),
		schema.Need("lbs", HostAddress("LB").List(&n.LBs, topo.MaxLbs), "Addresses of the LBs on the link.").Eg("[192.0.2.1]"),
		schema.Optional("cores", "1", NodeCores().Into(&n.Cores), "Cores of the node, the same as in the LBs' files."),
		schema.Optional("cpus", "shared", schema.YesNo("shared", "own").Into(&n.Spread),
			"own: core N is CPU N. shared: cores are the CPUs that packets come to."),
		schema.Need("clients", Network().List(&n.Clients, maxEdgePrefixes), "Prefixes of the client network.").Eg(clientNetwork),
		schema.Optional("idle", "5m", schema.Within(time.Second, 24*time.Hour).Into(&n.Idle), "Functions forget a flow without packets for so long."),
		schema.Optional("linger", "10s", schema.Within(time.Second, time.Hour).Into(&n.Linger), "How long functions remember a closed flow."),
		schema.Optional("report_key", "", ReportKey().Secret(&n.ReportKey),
			"Secret of the reports to the LBs: the same on every edge LB and node; without it the node reports nothing."),
		schema.Need("chains", schema.Sequence(&n.Chains, 1, topo.MaxEdgeServices-1, chainOf), "Functions of each service."),
	}
}

func chainOf(c *topo.Chain) []schema.Entry {
	return []schema.Entry{
		schema.Need("service", ChainNumber().Into(&c.Service), "Number of the service.").Eg("1"),
		schema.Need("functions", Functions(&c.Functions),
			"Functions, in the order that outward packets meet them."),
	}
}

// Functions reads those of a chain.
func Functions(dst *[]topo.Function) schema.Value {
	return schema.SequenceAs(dst, 1, topo.MaxChain, functionOf, function.noun, settingsOf)
}

// CheckDatapath finds the mistakes of a datapath node's file that no single value shows.
func CheckDatapath(d *schema.Document, n *topo.Datapath) {
	services, lbs, clients := unique[int]{}, unique[netip.Addr]{}, unique[netip.Prefix]{}
	for i, a := range n.LBs {
		lbs.add(d, fmt.Sprintf("lbs[%d]", i), a)
	}
	for i, p := range n.Clients {
		clients.add(d, fmt.Sprintf("clients[%d]", i), p)
	}
	for i, c := range n.Chains {
		at := fmt.Sprintf("chains[%d]", i)
		services.add(d, at+".service", c.Service)
		users := unique[string]{}
		for j, f := range c.Functions {
			at := fmt.Sprintf("%s.functions[%d]", at, j)
			checkFunction(d, at, f, n)
			if _, ok := f.(topo.User); ok {
				users.add(d, at+".function", f.Name())
			}
		}
	}
}
