// Package config turns the text of a configuration file into validated nouns
// of topo, and back. It exists so that nothing behind it meets an impossible
// value: what it returns can be loaded into the data plane as it is.
//
// The way of a file, and the order of this package's files:
//
//  1. yaml.go: bytes → syntax tree, refusing what could exhaust us
//  2. cursor.go: a place in the tree, and the errors found there
//  3. entry.go: tables of keys read through cursors
//  4. kind.go: what one value may be
//  5. lb.go, agent.go, farm.go: the tables of the three files
//  6. check.go, checkfarm.go: what no single value shows, such as duplicates
//
// It is pure: bytes come in, no file is opened and no clock is read.
package config

import (
	"cmp"
	"slices"

	"proffer/topo"
)

// Limits of one file.
const (
	MaxServices = 64
	MaxServers  = 4096 // over all services of an LB
)

// ParseLB reads the configuration of a load balancer. file is only a name for
// errors. The servers of a service come out sorted by locator. The error joins
// one *Error for each mistake found, in the order of the file.
func ParseLB(file string, data []byte) (*topo.LB, error) {
	lb := new(topo.LB)
	doc := newDocument(file)
	doc.parse(data, lbFile(lb))
	if doc.ok() {
		nameLBServices(lb)
		checkLB(doc, lb)
	}
	if err := doc.err(); err != nil {
		return nil, err
	}
	for i := range lb.Services {
		sortServers(lb.Services[i].Servers)
	}
	return lb, nil
}

// ParseAgent reads the configuration of a server's agent. cpus is the number
// of cores of a service that does not state it. Errors are as of ParseLB.
func ParseAgent(file string, data []byte, cpus int) (*topo.Agent, error) {
	agent := new(topo.Agent)
	doc := newDocument(file)
	doc.parse(data, agentFile(agent))
	if doc.ok() {
		completeOfferings(agent, cpus)
		checkAgent(doc, agent)
	}
	if err := doc.err(); err != nil {
		return nil, err
	}
	return agent, nil
}

func sortServers(servers []topo.Server) {
	slices.SortFunc(servers, func(a, b topo.Server) int {
		return a.Locator.Addr().Compare(b.Locator.Addr())
	})
}

func nameLBServices(lb *topo.LB) {
	for i := range lb.Services {
		s := &lb.Services[i]
		s.Name = cmp.Or(s.Name, s.VIP.String())
	}
}

func completeOfferings(agent *topo.Agent, cpus int) {
	for i := range agent.Services {
		o := &agent.Services[i]
		o.Name = cmp.Or(o.Name, o.VIP.String())
		o.Cores = cmp.Or(o.Cores, max(cpus, 1))
	}
}
