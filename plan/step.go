package plan

import (
	"fmt"
	"net/netip"

	"proffer/topo"
)

// Verb is the action of a step.
type Verb uint8

// The actions, by the order of a plan.
const (
	SetKeys       Verb = iota // sign and check signals by other keys
	AddServer                 // number a server and write its record
	DeriveKeys                // derive the keys of all servers
	RemoveService             // its packets are the kernel's again
	ReplaceTable              // put a table into the slot of the table before, at once
	MakeTable                 // put a table into a free slot, which no packet reads
	NameTable                 // write the record that names the table made
	MarkVIP                   // fragments to an address: to a service, or dropped
	UnmarkVIP                 // fragments to an address: to the kernel
	Wait                      // until no packet reads a record that was replaced or removed
	FreeTable                 // a slot with a table that no record names
	RemoveServer              // its record and its number

	AddOffering    // at an agent: start the load of a service, then offer it
	KeepOffering   // with the load that an earlier agent left
	RemoveOffering // its load stays, as old flows may count in it
)

// Step is an action. Equal steps have the same effect.
type Step struct {
	Verb    Verb
	Service string
	VIP     topo.VIP    // of the service; of a mark its address alone
	Server  topo.Server // that joins or leaves the service
	Keys    string      // the ids, that which signs first
	Count   int         // lists of a table; servers with derived keys; number of a load
	Changed int         // lists of today that differ from the table before
	First   bool        // the service begins
}

// String is the step in an operator's words.
func (s Step) String() string {
	switch s.Verb {
	case SetKeys:
		if s.Keys == "" {
			return "sign and check no signals"
		}
		return "sign signals with the first of keys " + s.Keys + " and accept all of them"
	case AddServer:
		return fmt.Sprintf("add server %s %s weight %d to %s", s.Server.Name, s.Server.Where(), s.Server.Weight, s.Service)
	case DeriveKeys:
		return fmt.Sprintf("derive the keys of %d servers", s.Count)
	case RemoveService:
		return fmt.Sprintf("remove service %s at %s", s.Service, s.VIP)
	case ReplaceTable:
		return fmt.Sprintf("replace the table of %s: %d lists, %d change", s.Service, s.Count, s.Changed)
	case MakeTable:
		return fmt.Sprintf("make a table for %s: %d lists", s.Service, s.Count)
	case NameTable:
		if s.First {
			return fmt.Sprintf("serve %s at %s", s.Service, s.VIP)
		}
		return fmt.Sprintf("serve %s at %s by its new table and settings", s.Service, s.VIP)
	case MarkVIP:
		if s.Service == "" {
			return fmt.Sprintf("drop fragments to %s", s.VIP.Addr)
		}
		return fmt.Sprintf("hash fragments to %s as %s", s.VIP.Addr, s.Service)
	case UnmarkVIP:
		return fmt.Sprintf("leave fragments to %s to the kernel", s.VIP.Addr)
	case Wait:
		return "wait for the packets on their way"
	case FreeTable:
		return "free the old table of " + s.Service
	default:
		return s.ofServer()
	}
}

func (s Step) ofServer() string {
	switch {
	case s.Verb == AddOffering:
		return fmt.Sprintf("offer %s at %s with load %d", s.Service, s.VIP, s.Count)
	case s.Verb == KeepOffering:
		return fmt.Sprintf("offer %s at %s with load %d, as it is", s.Service, s.VIP, s.Count)
	case s.Verb == RemoveOffering:
		return fmt.Sprintf("offer no service at %s", s.VIP)
	case s.Service == "":
		return fmt.Sprintf("remove server %s of an earlier configuration", s.Server.Where())
	default:
		return fmt.Sprintf("remove server %s %s from %s", s.Server.Name, s.Server.Where(), s.Service)
	}
}

// about is the step of a service.
func about(verb Verb, svc *Service) Step { return Step{Verb: verb, Service: svc.Name, VIP: svc.VIP} }

// mark is a step about an address's treatment of fragments.
func mark(verb Verb, addr netip.Addr, service string) Step {
	return Step{Verb: verb, VIP: topo.VIP{Addr: addr}, Service: service}
}
