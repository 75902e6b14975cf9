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

// function has the settings of every function; the file gives those of the function that it names.
type function struct {
	name     string
	cost     topo.Cost
	nat      topo.SourceNAT
	firewall topo.Firewall
	ids      topo.IDS
	rewriter topo.Rewriter
	virtual  topo.Virtual
	user     topo.User
}

// nouns are the functions, each with its settings.
func (f function) nouns() []topo.Function {
	return []topo.Function{f.cost, f.nat, f.firewall, f.ids, f.rewriter, f.virtual, f.user}
}

func (f function) noun() topo.Function {
	for _, noun := range f.nouns() {
		if noun.Name() == f.name {
			return noun
		}
	}
	return nil
}

func settingsOf(noun topo.Function) function {
	f := function{name: noun.Name()}
	switch noun := noun.(type) {
	case topo.Cost:
		f.cost = noun
	case topo.SourceNAT:
		f.nat = noun
	case topo.Firewall:
		f.firewall = noun
	case topo.IDS:
		f.ids = noun
	case topo.Rewriter:
		f.rewriter = noun
	case topo.Virtual:
		f.virtual = noun
	case topo.User:
		f.user = noun
	}
	return f
}

// functionNames accepts the name of any.
func functionNames() schema.Kind[string] {
	var names []string
	for _, noun := range (function{}).nouns() {
		names = append(names, noun.Name())
	}
	return schema.Words(names...)
}

func functionOf(f *function) []schema.Entry {
	is := func(noun topo.Function) *schema.Condition { return schema.When("function", noun.Name()) }
	cost, nat, firewall, ids, rewriter := is(f.cost), is(f.nat), is(f.firewall), is(f.ids), is(f.rewriter)
	virtual, user := is(f.virtual), is(f.user)
	return []schema.Entry{
		schema.Need("function", functionNames().Into(&f.name), "The function; the other keys are its settings."),
		cost.Need("time", schema.Within(time.Nanosecond, dearestFunction).Into(&f.cost.Each), "The time that each packet takes.").Eg("2us"),
		nat.Optional("public4", "", publicAddress("IPv4", "203.0.113.1").Into(&f.nat.Public4), "Public IPv4 address; without it IPv4 is dropped."),
		nat.Optional("public6", "", publicAddress("IPv6", "2001:db8:f::1").Into(&f.nat.Public6), "Public IPv6 address; without it IPv6 is dropped."),
		nat.Need("first_port", schema.Whole(1024, 65472).Into(&f.nat.First), "First port of the first core, a multiple of 64; other nodes have others.").Eg("2048"),
		nat.Need("ports", schema.Whole(64, 64512).Into(&f.nat.Ports), "Ports of each core, a multiple of 64.").Eg("8192"),
		firewall.Need("rules", schema.Sequence(&f.firewall.Rules, 1, topo.MaxRules, rule),
			"The first rule that fits decides; without one the connection is denied."),
		ids.Need("patterns", schema.Sequence(&f.ids.Patterns, 1, topo.MaxPatterns, pattern), "Bytes to look for in payloads."),
		rewriter.Need("from", payload().Into(&f.rewriter.From), "Bytes to replace in payloads.").Eg("abc"),
		rewriter.Need("to", payload().Into(&f.rewriter.To), "Bytes in their place, as many.").Eg("xyz"),
		virtual.Need("each", schema.Within(time.Nanosecond, dearestFunction).Into(&f.virtual.Each), "Time of the virtual core for each packet.").Eg("20us"),
		virtual.Optional("queue", "512", schema.Whole(0, 65535).Into(&f.virtual.Queue), "Packets that wait for the virtual core at most."),
		virtual.Optional("noise", "0", schema.Fraction(0, 1).Into(&f.virtual.Noise),
			"Standard deviation of reported loads, in parts of a core.").Eg("0.1"),
		user.Need("run", schema.OneOf(topo.UserFunctions()...).Into(&f.user.Run), "The function outside the kernel."),
	}
}

func rule(r *topo.Rule) []schema.Entry {
	return []schema.Entry{
		schema.Need("action", schema.YesNo("allow", "deny").Set(func(denied bool) { r.Allow = !denied }, func() bool { return !r.Allow }),
			"The end of a connection that fits."),
		schema.Optional("source", "", Network().Into(&r.Source), "Source of the first packet; any when absent."),
		schema.Optional("destination", "", Network().Into(&r.Destination), "Its destination; any when absent.").Eg("198.51.100.0/24"),
		schema.Optional("protocol", "any", schema.OneOf(protocols()...).Into((*protocol)(&r.Protocol)), "Protocol."),
		schema.Optional("ports", "", portRange().Set(func(p [2]uint16) { r.Low, r.High = p[0], p[1] }, func() [2]uint16 { return [2]uint16{r.Low, r.High} }),
			"Destination port or ports; any when absent."),
	}
}

func pattern(p *topo.Pattern) []schema.Entry {
	return []schema.Entry{
		schema.Need("bytes", payload().Into(&p.Bytes), "Bytes of a packet's payload.").Eg("attack"),
		schema.Optional("action", "count", schema.YesNo("count", "drop").Into(&p.Drop), "count: count the packets. drop: drop them, too."),
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
	}).Spelt(ports).Like("^[1-9][0-9]{0,4}(-[1-9][0-9]{0,4})?$").Eg("443", "8000-8999")
}

// ports spells a range, 0 as none.
func ports(r [2]uint16) string {
	switch {
	case r == [2]uint16{}:
		return ""
	case r[0] == r[1]:
		return fmt.Sprint(r[0])
	}
	return fmt.Sprintf("%d-%d", r[0], r[1])
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

// checkPublic: an address of the client network is a client's at LB and nodes, so a public address there would be
// both.
func checkPublic(d *schema.Document, key string, public netip.Addr, bits int, clients []netip.Prefix, where string) {
	for i, p := range clients {
		if at := fmt.Sprintf("%s[%d]", where, i); p.Contains(public) && p.Bits() <= bits {
			d.Failf(key, "%s lies in %s of the client network (%s, line %d); want public addresses outside", public, p, d.Key(at), d.Line(at))
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
