package config

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"proffer/schema"
	"proffer/topo"
)

// dearestFunction is the most that function cost takes of a packet: more is no cost but a stop.
const dearestFunction = 10 * time.Millisecond

// ParseDatapath reads the configuration of a datapath node. Errors are as of ParseLB.
func ParseDatapath(file string, data []byte) (*topo.Datapath, error) {
	n, chains := new(topo.Datapath), []chain(nil)
	doc := &schema.Document{File: file}
	doc.Parse(data, datapathFile(n, &chains))
	if doc.OK() {
		for _, c := range chains {
			n.Chains = append(n.Chains, c.chain())
		}
		checkDatapath(doc, n)
	}
	if err := doc.Err(); err != nil {
		return nil, err
	}
	return n, nil
}

// datapathFile is the table of a datapath node's file.
func datapathFile(n *topo.Datapath, chains *[]chain) []schema.Entry {
	return []schema.Entry{
		schema.Need("name", schema.Name().Into(&n.Name)),
		schema.Optional("control", "/run/proffer/nf.sock", socket().Into(&n.Control)),
		schema.Need("number", nodeNumber().Into(&n.Server)),
		schema.Need("link", link().Into(&n.Link)),
		schema.Need("lbs", hostAddress("LB").List(&n.LBs, topo.MaxLbs)),
		schema.Optional("cores", "1", nodeCores().Into(&n.Cores)),
		schema.Optional("cpus", "shared", schema.OneOf[word]("shared", "own").Set(func(w word) { n.Spread = w == "own" })),
		schema.Need("clients", network().List(&n.Clients, maxEdgePrefixes)),
		schema.Optional("idle", "5m", schema.Within(time.Second, 24*time.Hour).Into(&n.Idle)),
		schema.Optional("linger", "10s", schema.Within(time.Second, time.Hour).Into(&n.Linger)),
		schema.Optional("report_key", "", reportKey().Secret(&n.ReportKey)),
		schema.Need("chains", schema.Sequence(chains, 1, topo.MaxEdgeServices-1, chainOf)),
	}
}

// word is one of a few values of a key.
type word string

func (w word) String() string { return string(w) }

// chain is a service's functions as the file has them.
type chain struct {
	service   int
	functions []function
}

// function has the settings of every function, of which the file may give those of its own.
type function struct {
	name     word
	cost     topo.Cost
	nat      topo.SourceNAT
	firewall topo.Firewall
	ids      topo.IDS
	rewriter topo.Rewriter
	virtual  topo.Virtual
	user     topo.User
}

func (c chain) chain() topo.Chain {
	t := topo.Chain{Service: c.service}
	for i := range c.functions {
		f := &c.functions[i]
		for _, one := range []topo.Function{f.cost, f.nat, f.firewall, f.ids, f.rewriter, f.virtual, f.user} {
			if one.Name() == f.name.String() {
				t.Functions = append(t.Functions, one)
			}
		}
	}
	return t
}

func chainOf(c *chain) []schema.Entry {
	return []schema.Entry{
		schema.Need("service", serviceNumber().Into(&c.service)),
		schema.Need("functions", schema.Sequence(&c.functions, 1, topo.MaxChain, functionOf)),
	}
}

func functionOf(f *function) []schema.Entry {
	is := func(name word) *schema.Condition {
		return schema.When("function: "+name.String(), func() bool { return f.name == name })
	}
	cost, nat, firewall, ids, rewriter := is("cost"), is("nat"), is("firewall"), is("ids"), is("rewriter")
	virtual, user := is("virtual"), is("user")
	return []schema.Entry{
		schema.Need("function", schema.OneOf[word]("cost", "nat", "firewall", "ids", "rewriter", "virtual", "user").Into(&f.name)),
		cost.Need("time", schema.Within(time.Nanosecond, dearestFunction).Into(&f.cost.Each)),
		nat.Optional("public4", "", publicAddress("IPv4", "203.0.113.1").Into(&f.nat.Public4)),
		nat.Optional("public6", "", publicAddress("IPv6", "2001:db8:f::1").Into(&f.nat.Public6)),
		nat.Need("first_port", schema.Whole(1024, 65472).Into(&f.nat.First)),
		nat.Need("ports", schema.Whole(64, 64512).Into(&f.nat.Ports)),
		firewall.Need("rules", schema.Sequence(&f.firewall.Rules, 1, topo.MaxRules, rule)),
		ids.Need("patterns", schema.Sequence(&f.ids.Patterns, 1, topo.MaxPatterns, pattern)),
		rewriter.Need("from", payload().Into(&f.rewriter.From)),
		rewriter.Need("to", payload().Into(&f.rewriter.To)),
		virtual.Need("each", schema.Within(time.Nanosecond, dearestFunction).Into(&f.virtual.Each)),
		virtual.Optional("queue", "512", schema.Whole(0, 65535).Into(&f.virtual.Queue)),
		virtual.Optional("noise", "0", schema.Fraction(0, 1).Into(&f.virtual.Noise)),
		user.Need("run", schema.OneOf(topo.UserFunctions()...).Into(&f.user.Run)),
	}
}

func rule(r *topo.Rule) []schema.Entry {
	return []schema.Entry{
		schema.Need("action", schema.OneOf[word]("allow", "deny").Set(func(w word) { r.Allow = w == "allow" })),
		schema.Optional("source", "", network().Into(&r.Source)),
		schema.Optional("destination", "", network().Into(&r.Destination)),
		schema.Optional("protocol", "any", schema.OneOf(protocols()...).Set(func(p protocol) { r.Protocol = uint8(p) })),
		schema.Optional("ports", "", portRange().Set(func(p [2]uint16) { r.Low, r.High = p[0], p[1] })),
	}
}

func pattern(p *topo.Pattern) []schema.Entry {
	return []schema.Entry{
		schema.Need("bytes", payload().Into(&p.Bytes)),
		schema.Optional("action", "count", schema.OneOf[word]("count", "drop").Set(func(w word) { p.Drop = w == "drop" })),
	}
}

// protocol is a number of IANA's, and 0 for any.
type protocol uint8

func protocols() []protocol { return []protocol{0, 6, 17, 1, 58} }

func (p protocol) String() string {
	return map[protocol]string{0: "any", 6: "tcp", 17: "udp", 1: "icmp", 58: "icmpv6"}[p]
}

// portRange is destination ports.
func portRange() schema.Kind[[2]uint16] {
	return schema.TextOrNumber("a port such as 80 or two such as 8000-8999", func(s string) (r [2]uint16, err error) {
		low, high, two := strings.Cut(s, "-")
		if !two {
			high = low
		}
		for i, part := range []string{low, high} {
			n, err := strconv.ParseUint(part, 10, 16)
			if err != nil || n == 0 || strconv.FormatUint(n, 10) != part {
				return r, schema.ErrNot
			}
			r[i] = uint16(n)
		}
		if r[0] > r[1] {
			return r, schema.ErrNot
		}
		return r, nil
	})
}

// payload is bytes of a packet.
func payload() schema.Kind[string] {
	return schema.TextOrNumber(fmt.Sprintf("1 to %d bytes of text", topo.MaxPatternBytes), func(s string) (string, error) {
		if len(s) < 1 || len(s) > topo.MaxPatternBytes {
			return "", schema.ErrNot
		}
		return s, nil
	})
}

// checkDatapath finds the mistakes of a datapath node's file that no single value shows.
func checkDatapath(d *schema.Document, n *topo.Datapath) {
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

func checkFunction(d *schema.Document, at string, f topo.Function, n *topo.Datapath) {
	switch f := f.(type) {
	case topo.SourceNAT:
		checkNAT(d, at, f, n.Cores)
		checkPublic(d, at+".public4", f.Public4, f.Public4.BitLen(), n.Clients, "clients")
		checkPublic(d, at+".public6", f.Public6, f.Public6.BitLen(), n.Clients, "clients")
	case topo.Firewall:
		for i, r := range f.Rules {
			if r.Source.IsValid() && r.Destination.IsValid() && r.Source.Addr().Is4() != r.Destination.Addr().Is4() {
				d.Failf(fmt.Sprintf("%s.rules[%d].destination", at, i),
					"%s and source %s are of two families, so no packet fits; want both of IPv4 or both of IPv6", r.Destination, r.Source)
			}
		}
	case topo.Rewriter:
		if len(f.From) != len(f.To) {
			d.Failf(at+".to", "%q has %d bytes, and from has %d; want as many", f.To, len(f.To), len(f.From))
		}
	}
}

// checkPublic: an address of the client network is a client's at LB and nodes, so a public one there would be
// both.
func checkPublic(d *schema.Document, key string, public netip.Addr, bits int, clients []netip.Prefix, where string) {
	for i, p := range clients {
		if at := fmt.Sprintf("%s[%d]", where, i); p.Contains(public) && p.Bits() <= bits {
			d.Failf(key, "%s lies in %s of the client network (%s, line %d); want public addresses outside", public, p, at, d.Line(at))
		}
	}
}

// checkNAT: ports are cut into ranges of the cores, in words of 64.
func checkNAT(d *schema.Document, at string, f topo.SourceNAT, cores int) {
	switch {
	case !f.Public4.IsValid() && !f.Public6.IsValid():
		d.Failf(at+".function", "\"nat\" has no public address; want public4, public6 or both")
	case f.Public4.IsValid() && !f.Public4.Is4():
		d.Failf(at+".public4", "\"%s\" is IPv6; want an IPv4 address", f.Public4)
	case f.Public6.IsValid() && f.Public6.Is4():
		d.Failf(at+".public6", "\"%s\" is IPv4; want an IPv6 address", f.Public6)
	}
	const words = 64
	switch {
	case f.First%words != 0:
		d.Failf(at+".first_port", "%d is no multiple of %d; want %d", f.First, words, f.First/words*words+words)
	case f.Ports%words != 0:
		d.Failf(at+".ports", "%d is no multiple of %d; want %d", f.Ports, words, f.Ports/words*words)
	case f.First+cores*f.Ports > 1<<16:
		d.Failf(at+".ports", "%d of each of %d cores from %d on end above 65535; want at most %d", f.Ports, cores, f.First, ((1<<16)-f.First)/cores/words*words)
	}
}
