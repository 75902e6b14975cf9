package lb

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"proffer/plan"
	"proffer/topo"
)

// Configure plans and applies a configuration.
func (l *LB) Configure(cfg *topo.LB) error {
	p, err := l.Plan(cfg)
	if err != nil {
		return err
	}
	return l.Apply(p)
}

// Plan returns the way from the configuration that the LB has to cfg.
func (l *LB) Plan(cfg *topo.LB) (*plan.Plan, error) {
	l.mu.Lock()
	have := l.state
	l.mu.Unlock()
	want, err := plan.Want(cfg, have)
	if err != nil {
		return nil, err
	}
	return plan.New(have, want), nil
}

// Apply executes a plan while packets flow: each packet meets the old or the new
// service, with the whole table that belongs to it. The constants of the programs do
// not change, and unchanged records are not written.
func (l *LB) Apply(p *plan.Plan) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if p.Have != l.state {
		return errors.New("apply a configuration: another configuration was applied after the plan was made")
	}
	for _, steps := range p.Phases() {
		if err := l.execute(steps, p.Want); err != nil {
			l.state = l.held(p.Want)
			return errors.Join(err, l.tidy())
		}
	}
	l.state = p.Want
	return nil
}

// execute executes steps of a phase.
func (l *LB) execute(steps []plan.Step, want *plan.State) error {
	switch steps[0].Verb {
	case plan.SetKeys:
		return l.SetKeys(want.Keys)
	case plan.AddServer:
		all := want.Servers()
		if err := l.numbers.take(all); err != nil {
			return err
		}
		return l.writeServers(all)
	case plan.DeriveKeys:
		return l.writeServerKeys(want.Keys, want.Servers())
	case plan.RemoveService:
		for _, s := range steps {
			l.remove(s.VIP)
		}
		return nil
	case plan.ReplaceTable, plan.MakeTable:
		return l.writeServices(steps, want)
	case plan.MarkVIP, plan.UnmarkVIP:
		return l.markVIPs(want)
	case plan.Wait:
		return l.records.settle()
	case plan.FreeTable:
		return l.release()
	case plan.RemoveServer:
		return l.dropServers(want.Servers())
	}
	return fmt.Errorf("execute %q: the LB has no such step", steps[0])
}

// adopted is the state of an LB that has just been loaded: without services, and with
// the numbers that an earlier daemon gave to servers.
func (l *LB) adopted() *plan.State {
	var strangers []topo.Server
	for locator := range l.numbers.known {
		strangers = append(strangers, topo.Server{Locator: locatorPrefix(locator)})
	}
	slices.SortFunc(strangers, func(a, b topo.Server) int { return a.Locator.Addr().Compare(b.Locator.Addr()) })
	return &plan.State{Strangers: strangers}
}

// locatorPrefix undoes objects.LocatorBits.
func locatorPrefix(bits uint64) netip.Prefix {
	var a [16]byte
	binary.NativeEndian.PutUint64(a[:], bits)
	return netip.PrefixFrom(netip.AddrFrom16(a), 64)
}

// held is the state after a plan towards want has failed.
func (l *LB) held(want *plan.State) *plan.State {
	var services []plan.Service
	for i := range want.Services { // in their order, on which marks depend
		if at, ok := l.services[want.Services[i].VIP]; ok {
			services = append(services, at.svc)
		}
	}
	for vip, at := range l.services {
		if want.Service(vip) == nil {
			services = append(services, at.svc)
		}
	}
	return plan.Held(services, l.adopted().Strangers)
}

// tidy removes the remains of a plan that failed.
func (l *LB) tidy() error {
	if err := l.markVIPs(l.state); err != nil {
		return err // a mark may still name an old table
	}
	if err := l.records.settle(); err != nil {
		return err
	}
	return l.release()
}
