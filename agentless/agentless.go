// Package agentless sets up a server that runs none of our software: the commands that its kernel
// needs to take an LB's packets (End.DT6, End.DX6 and End.DX4 of RFC 8986 §4, direct server return
// on the link, VXLAN of RFC 7348), the way back, and a check of a host against them.
//
//  1. agentless.go: a configuration and a server → the steps
//  2. step.go: a step, and those of addresses and settings; srv6.go, vxlan.go: those of a delivery
//  3. look.go: the host as the checks see it
//  4. script.go: the steps as a script, and as a report
package agentless

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"proffer/topo"
)

// Setup is all that a server needs.
type Setup struct {
	Server string
	Link   string // towards the LBs
	Behind bool   // the VIPs are those of a host or container behind the server, where it matters
	Uses   []Use
	Steps  []Step
}

// Use is a service that the server takes packets of.
type Use struct {
	Service string
	VIP     topo.VIP
	Via     bool // its packets visit other SIDs before
	topo.Server
}

// UnknownServer is a name that no server of the configuration has.
type UnknownServer struct {
	Name  string
	Known []string
}

func (e *UnknownServer) Error() string {
	return fmt.Sprintf("no service has a server %q; want one of %s", e.Name, strings.Join(e.Known, ", "))
}

// Of is the set-up of the server with this name and link towards the LBs.
func Of(lb *topo.LB, name, link string, behind bool) (*Setup, error) {
	s := &Setup{Server: name, Link: link, Behind: behind}
	var known []string
	for i := range lb.Services {
		svc := &lb.Services[i]
		for _, server := range svc.Servers {
			if server.Name == name {
				s.Uses = append(s.Uses, Use{svc.Name, svc.VIP, len(svc.Via) > 0, server})
			}
			known = append(known, server.Name)
		}
	}
	if s.Uses == nil {
		slices.Sort(known)
		return nil, &UnknownServer{name, slices.Compact(known)}
	}
	for _, u := range s.Uses {
		switch {
		case u.Delivery == topo.ByAgent:
			return nil, fmt.Errorf("server %s has delivery: agent in service %s: run `proffer agent` there, with the VIP on lo", name, u.Service)
		case behind && u.Delivery != topo.ByDX6 && u.Delivery != topo.ByDX4:
			return nil, fmt.Errorf("server %s has delivery: %s in service %s, which leads to no host behind it; want dx6 or dx4", name, u.Delivery, u.Service)
		}
	}
	s.plan()
	return s, nil
}

// plan orders the steps: settings, before an address that they are about; then the ways in.
func (s *Setup) plan() {
	s.add(s.toLBs())
	s.forwarding() // first, as the kernel resets others with it
	s.settings()
	for _, vip := range s.vips(s.onLo) {
		s.add(s.address(vip))
	}
	s.seg6()
	s.vxlan()
	for _, u := range s.Uses {
		if !u.Delivery.SRv6() {
			s.add(s.own(u.Address))
		}
	}
}

// add adds a step, once.
func (s *Setup) add(step Step) {
	same := func(o Step) bool { return o.Why == step.Why && o.Do == step.Do }
	if !slices.ContainsFunc(s.Steps, same) {
		s.Steps = append(s.Steps, step)
	}
}

// isBehind reports whether the VIP is an address of a host or container behind the server.
func (s *Setup) isBehind(u Use) bool { return s.Behind || u.Delivery == topo.ByDX6 }

// onLo reports whether the VIP is an address of the server itself.
func (s *Setup) onLo(u Use) bool { return !s.isBehind(u) }

// is holds for the uses of a delivery.
func is(d topo.Delivery) func(Use) bool { return func(u Use) bool { return u.Delivery == d } }

func isIPv4(u Use) bool { return u.VIP.Addr.Is4() }

// has reports whether a use has a property.
func (s *Setup) has(property func(Use) bool) bool { return slices.ContainsFunc(s.Uses, property) }

// vips are the VIPs of the uses with a property, each once.
func (s *Setup) vips(property func(Use) bool) (vips []netip.Addr) {
	for _, u := range s.Uses {
		if property(u) && !slices.Contains(vips, u.VIP.Addr) {
			vips = append(vips, u.VIP.Addr)
		}
	}
	return vips
}

// locators are those of a delivery, each once.
func (s *Setup) locators(d topo.Delivery) (locators []netip.Prefix) {
	for _, u := range s.Uses {
		if u.Delivery == d && !slices.Contains(locators, u.Locator) {
			locators = append(locators, u.Locator)
		}
	}
	return locators
}
