// Package farm holds the file of a whole farm: nodes, services and chains, the same bytes on every node.
//
//  1. farm.go: the nouns; Parse and Marshal. kind.go, table.go: the keys of the file
//  2. check.go, checknode.go, checkservice.go: mistakes that no single value shows; warn.go: what is no mistake
//  3. expand.go, derive.go, edge.go: the configuration of each node, as config has it
//  4. secrets.go: the keys, in a file of their own
//  5. example.go: a farm to begin with; convert.go: a farm from the files of before; changes.go: names of what changes
//
// It is pure: bytes come in, no file is opened and no clock is read.
package farm

import (
	"fmt"
	"net/netip"
	"strings"

	"proffer/schema"
	"proffer/topo"
)

// Farm is all that the nodes of a farm have in common.
type Farm struct {
	Name     string
	Version  int
	Domain   []netip.Prefix // none: that of the locators
	Open     bool           // the domain is every address
	Nodes    []Node
	Services []Service
	Chains   []Chain
}

// Role is what a node is in the farm.
type Role uint8

// The roles.
const (
	NoRole Role = iota
	LB
	Server
	Edge
	NF
)

func (r Role) String() string { return [...]string{"no role", "lb", "server", "edge", "nf"}[r] }

// Daemon is the verb that runs a role.
func (r Role) Daemon() string {
	if r == Server {
		return "agent"
	}
	return r.String()
}

// At is the place of a node: its own address, or only that packets for its locator are routed there.
type At struct {
	Addr   netip.Addr
	Routed bool
}

func (a At) given() bool { return a.Routed || a.Addr.IsValid() }

// Node is a machine of the farm.
type Node struct {
	Name                 string
	LB, Server, Edge, NF At // one of them
	Locator              netip.Prefix
	Weight               int

	Deliveries []topo.Delivery // of a server; several: each for addresses that it takes packets for
	VNI        int
	MAC        topo.MAC

	Clients, World string // links of an edge LB
	Balance        topo.Balance
	RecoverAll     bool
	Public         []netip.Prefix
	StartReplica   []string

	Number   int // of an nf, above 0 by one; 0: its place among them
	Cores    int
	Spread   bool
	EdgeLink string         // of the edge LBs to an nf
	Prefixes []netip.Prefix // of an nf's client network; none: those of all chains
	NATPort  int            // first port of its source NAT; 0: that of the chains

	Link, Pin, Control, State string // what only the host knows; empty: the usual
	Flows                     topo.FlowTable
}

// Role is the node's.
func (n *Node) Role() Role {
	for r, at := range n.places() {
		if at.given() {
			return Role(r)
		}
	}
	return NoRole
}

func (n *Node) places() []At {
	return []At{NoRole: {}, LB: n.LB, Server: n.Server, Edge: n.Edge, NF: n.NF}
}

// At is the node's place.
func (n *Node) At() At { return n.places()[n.Role()] }

// Port is a port, a range of them, or any.
type Port struct {
	Protocol  topo.Protocol
	Low, High uint16
}

// Service is one pool behind one or several addresses and ports.
type Service struct {
	topo.Service // without its VIP and servers
	Addrs        []netip.Addr
	Ports        []Port
	Recovery     recovery
	Accepts      topo.Offering // how its servers take connections
	Members      []Member
	Pool         int // number of the pool, above it by one; 0: the farm's version
}

// Member is a server of a service.
type Member struct {
	Node    string
	Weight  int           // -1: the node's
	Accepts topo.Offering // as the service's, but for what the file states
}

// Chain is the functions that packets of some prefixes of the client network meet.
type Chain struct {
	Name string
	topo.EdgeService
	Functions []topo.Function // none: the nodes are no part of this file
}

// Node is the node of a name; nil: there is none.
func (f *Farm) Node(name string) *Node {
	for i := range f.Nodes {
		if f.Nodes[i].Name == name {
			return &f.Nodes[i]
		}
	}
	return nil
}

// mostMistakes bounds those that are told at once.
const mostMistakes = 1000

// Parse reads a farm's file. file is only a name for errors. The error joins one *schema.Error for each
// mistake, in the order of the file; warnings come with a farm that can be used.
func Parse(file string, data []byte) (f *Farm, warnings []*schema.Error, err error) {
	f = new(Farm)
	doc := &schema.Document{File: file, Most: mostMistakes}
	doc.Parse(data, table(f))
	check(doc, f)
	if err := doc.Err(); err != nil {
		return nil, nil, err
	}
	warn(doc, f)
	return f, doc.Warnings, nil
}

// Marshal writes a file that Parse reads back as f, without the keys that have their defaults.
func Marshal(f *Farm) []byte { return schema.WriteShort(table(f)) }

// Mistake is an error at the value of a key of the farm's file, by facts that the file does not have.
func Mistake(file string, data []byte, key, problem string) error {
	doc := &schema.Document{File: file}
	doc.Parse(data, table(new(Farm)))
	return doc.Mistake(key, problem)
}

// Count is how many nodes of each role there are, and services and chains, for people.
func (f *Farm) Count() string {
	var parts []string
	add := func(n int, what string) {
		if n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, what))
		}
	}
	counts := map[Role]int{}
	for i := range f.Nodes {
		counts[f.Nodes[i].Role()]++
	}
	for _, r := range []Role{LB, Server, Edge, NF} {
		add(counts[r], r.String())
	}
	add(len(f.Services), "services")
	add(len(f.Chains), "chains")
	return strings.Join(parts, ", ")
}
