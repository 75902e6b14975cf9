package agent

import (
	"errors"
	"fmt"
	"math"

	"proffer/dataplane/objects"
	"proffer/plan"
	"proffer/topo"
)

// fill writes the services into a map of this agent's own: the programs of an earlier agent
// read theirs until they are replaced, and go on if this agent fails.
func (a *Agent) fill() error {
	have, err := offeredIn(a.before)
	if err != nil {
		return err
	}
	spaces, _ := namespacesOf(a.services) // one that is none yet is followed, and named by Problems
	for i, step := range plan.Offers(have, a.services)[:len(a.services)] {
		a.numbers = append(a.numbers, uint32(step.Count))
		if err := a.offer(&a.services[i], step, spaces[i]); err != nil {
			return fmt.Errorf("%s: %w", step, err)
		}
	}
	return a.work.offer(a.services, a.numbers)
}

// settle ends a takeover: with the old programs the services that only they offered are gone.
func (a *Agent) settle() error {
	if a.before == nil {
		return nil
	}
	have, err := offeredIn(a.before)
	if err != nil {
		return err
	}
	for i := range a.services {
		if _, known := have.Loads[a.services[i].VIP]; known {
			if err := a.setKept(&a.services[i], a.numbers[i]); err != nil {
				return err
			}
		}
	}
	err = errors.Join(a.purge(), a.before.Close())
	a.before = nil
	return err
}

// Offer goes over to other services while packets flow. It returns the steps of the way.
func (a *Agent) Offer(services []topo.Offering) (steps []plan.Step, err error) {
	if a.objs.SocketChanged == nil && countsSockets(services) {
		return nil, errors.New("load: sockets needs programs that only a start loads: restart the agent, which keeps its flows")
	}
	have, err := offeredIn(a.objs.Offerings)
	if err != nil {
		return nil, err
	}
	spaces, err := namespacesOf(services)
	if err != nil { // before anything changes
		return nil, err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if err := a.doubt(); err != nil { // a service to come may have sockets
		return nil, err
	}
	if err := a.startWork(services); err != nil {
		return nil, err
	}
	steps = plan.Offers(have, services)
	wanted, gone := steps[:len(services)], steps[len(services):]
	for _, step := range gone {
		if err := a.remove(step); err != nil {
			return nil, fmt.Errorf("%s: %w", step, err)
		}
	}
	if len(gone) > 0 {
		if err := a.purge(); err != nil {
			return nil, err
		}
	}
	numbers := make([]uint32, len(services))
	for i, step := range wanted {
		numbers[i] = uint32(step.Count)
		err := a.offer(&services[i], step, spaces[i])
		if err == nil && step.Verb == plan.KeepOffering {
			err = a.setKept(&services[i], numbers[i])
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", step, err)
		}
	}
	a.services, a.numbers = services, numbers
	a.offered.keep(services)
	if err := a.handed.keep(services); err != nil {
		return nil, err
	}
	if err = a.endWork(); err == nil {
		err = errors.Join(a.work.offer(services, numbers), a.work.recount(a.grace))
	}
	if a.sockets != nil {
		err = errors.Join(err, a.countOpen())
	}
	return steps, errors.Join(err, a.Complete())
}

// remove executes a step that leaves a service, or the fragments to an address.
func (a *Agent) remove(step plan.Step) error {
	key := objects.ServiceKey(step.VIP)
	if step.Verb == plan.UnmarkVIP {
		key = vipKey(step.VIP)
	}
	return a.objs.Offerings.Delete(key)
}

// offer executes the step of a service. A new load has no reader yet.
func (a *Agent) offer(s *topo.Offering, step plan.Step, namespace int32) error {
	number := uint32(step.Count)
	if step.Verb == plan.AddOffering {
		if err := a.setThreshold(number, uint32(s.Threshold)); err != nil {
			return err
		}
	}
	return a.writeOffering(s, number, namespace)
}

// setKept sets the threshold of a load that goes on, unless the threshold is learnt.
func (a *Agent) setKept(s *topo.Offering, number uint32) error {
	if s.Acceptance.Adapts() {
		return nil
	}
	return a.setThreshold(number, uint32(s.Threshold))
}

func countsSockets(services []topo.Offering) bool {
	for _, s := range services {
		if s.Measure.Sockets() {
			return true
		}
	}
	return false
}

// offeringOf is the service as the programs read it.
func offeringOf(s *topo.Offering, measure topo.Measure, number uint32, namespace int32) objects.AgentOffering {
	return objects.AgentOffering{
		Index:      number,
		Cores:      uint32(s.Cores),
		Window:     uint32(s.Window),
		EpsilonPpm: uint32(math.Round(s.Epsilon * 1e6)),
		Workers:    uint32(s.Workers),
		Acceptance: uint8(s.Acceptance),
		Measure:    uint8(measure),
		OnFull:     uint8(s.OnFull),
		Owner:      uint8(s.Owner),
		Netns:      namespace,
		Mac:        s.MAC,
		Wire:       uint8(s.Wire),
	}
}

// vipKey is the key of a service's address alone: fragments have no port.
func vipKey(v topo.VIP) objects.LBServiceKey {
	key := objects.ServiceKey(v)
	key.PortBe, key.Protocol = 0, 0
	return key
}
