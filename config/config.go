// Package config turns the text of a configuration file into validated nouns
// of topo, and back. It exists so that nothing behind it meets an impossible
// value: its results can be loaded into the data plane as they are.
//
// The files of LB and agent, and those of their signal keys, are tables of keys that
// schema reads:
//
//  1. kind.go, address.go, source.go, row.go: the values of a key
//  2. node.go, lb.go, agent.go, edge.go, datapath.go, keys.go: the tables; retired.go: keys of earlier files
//  3. check.go, checklb.go: mistakes that no single value shows, such as duplicates
//  4. format.go: the JSON Schema and the example of each file, from its table
//
// It is pure: bytes come in, no file is opened and no clock is read.
package config

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"

	"proffer/schema"
	"proffer/topo"
)

// MaxServers bounds the servers over all services of an LB and their history.
const MaxServers = 4096

// ParseLB reads the configuration of a load balancer. file is only a name for
// errors. The servers of a service and of its history come out sorted by
// Locator or address; the keys of signals stay in the file that KeyFile names. The error
// joins a *schema.Error for each mistake found, in the order of the file.
func ParseLB(file string, data []byte) (*topo.LB, error) {
	lb := new(topo.LB)
	doc := &schema.Document{File: file, Retired: retired}
	doc.Parse(data, lbFile(lb))
	if doc.OK() {
		completeLB(doc, lb)
		CheckLB(doc, lb)
	}
	if err := doc.Err(); err != nil {
		return nil, err
	}
	for i := range lb.Services {
		SortPools(&lb.Services[i])
	}
	return lb, nil
}

// LBMistake is an error at the value of a key in a load balancer's file, by facts that the file
// does not have.
func LBMistake(file string, data []byte, key, problem string) error {
	doc := &schema.Document{File: file, Retired: retired}
	doc.Parse(data, lbFile(new(topo.LB)))
	return doc.Mistake(key, problem)
}

// ParseAgent reads the configuration of a server's agent. cpus is the number
// of cores of a service that does not state it. Errors are as of ParseLB.
func ParseAgent(file string, data []byte, cpus int) (*topo.Agent, error) {
	agent := new(topo.Agent)
	doc := &schema.Document{File: file, Retired: retired}
	doc.Parse(data, agentFile(agent))
	if doc.OK() {
		CompleteAgent(agent, cpus)
		CheckAgent(doc, agent)
	}
	if err := doc.Err(); err != nil {
		return nil, err
	}
	return agent, nil
}

// MarshalLB writes a file that ParseLB reads back as lb, every default spelt
// out. lb must be valid and its servers sorted, as ParseLB returns it; only pin,
// embryonic and buckets may be zero, and are left to their defaults. Keys stay
// out: they come from KeyFile.
func MarshalLB(lb *topo.LB) []byte { return schema.Write(lbFile(lb)) }

// MarshalAgent writes a file that ParseAgent reads back as a, every default
// spelt out, so that it means the same whatever the number of CPUs. All else is
// as of MarshalLB.
func MarshalAgent(a *topo.Agent) []byte { return schema.Write(agentFile(a)) }

// MarshalPools writes the pools of services, each under its VIP, as the keys of a service that
// a load balancer's file has.
func MarshalPools(services []topo.Service) []byte {
	var b bytes.Buffer
	for i := range services {
		fmt.Fprintf(&b, "    # %s\n%s", services[i].VIP, schema.WriteAt("    ", pools(&services[i])))
	}
	return b.Bytes()
}

func SortPools(s *topo.Service) {
	sortServers(s.Servers)
	for _, v := range s.History {
		sortServers(v.Servers)
	}
}

func sortServers(servers []topo.Server) {
	slices.SortFunc(servers, func(a, b topo.Server) int {
		return a.At().Compare(b.At())
	})
}

func completeLB(d *schema.Document, lb *topo.LB) {
	CompletePin(&lb.Pin, "lb", lb.Name)
	lb.State = cmp.Or(lb.State, "/var/lib/proffer/lb-"+lb.Name+".json")
	for i := range lb.Services {
		s := &lb.Services[i]
		s.Name = cmp.Or(s.Name, VIPName(s.VIP))
		if !d.Given(fmt.Sprintf("services[%d].recovery", i)) {
			CompleteRecovery(s)
		}
	}
}

func CompleteAgent(agent *topo.Agent, cpus int) {
	CompletePin(&agent.Pin, "agent", agent.Name)
	for i := range agent.Services {
		o := &agent.Services[i]
		o.Name = cmp.Or(o.Name, VIPName(o.VIP))
		o.Cores = cmp.Or(o.Cores, max(cpus, 1))
		o.From, o.Of = cmp.Or(o.From, o.Source.Row().Default), cmp.Or(o.Of, o.Source.Row().OfDefault)
	}
}
