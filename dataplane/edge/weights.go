package edge

import (
	"fmt"

	"proffer/dataplane/objects"
	"proffer/topo"
	"proffer/wire"
)

// SetWeights gives the instances of a service, in the order of its configuration, their
// shares of new flows. A weight of 0 drains an instance; without any weight above 0 the service takes
// no new flows.
func (l *LB) SetWeights(service int, weights []float64) error {
	numbers := l.numbersOf(service)
	if len(weights) != len(numbers) {
		return fmt.Errorf("service %d has %d instances, not %d", service, len(numbers), len(weights))
	}
	rows, err := aliasRows(numbers, weights)
	if err != nil {
		return fmt.Errorf("service %d: %w", service, err)
	}
	return l.setRows(service, rows)
}

// setRows fills the alias table that the service does not use, and names it by one store.
func (l *LB) setRows(service int, rows []uint64) error {
	if err := l.passed(service); err != nil {
		return err
	}
	bank := 1 - l.banks[service]
	first := (2*uint32(service) + bank) * topo.MaxRows
	for i, row := range rows {
		if err := l.objs.EdgeRows.Put(first+uint32(i), row); err != nil {
			return fmt.Errorf("write the weights of service %d: %w", service, err)
		}
	}
	now := objects.EdgeEdgeService{Rows: uint32(len(rows)), First: first}
	if err := l.objs.EdgeServices.Put(uint32(service), now); err != nil {
		return fmt.Errorf("set the weights of service %d: %w", service, err)
	}
	l.banks[service] = bank
	l.switched[service] = l.waits
	return nil
}

// passed returns when no packet reads the table before that in use. A wait serves all services that
// changed before it.
func (l *LB) passed(service int) error {
	before, ever := l.switched[service]
	if !ever || before < l.waits {
		return nil
	}
	if err := l.grace.Wait(); err != nil {
		return err
	}
	l.waits++
	return nil
}

// numbersOf are the numbers of a service's instances, in the order of its configuration.
func (l *LB) numbersOf(service int) (all []uint32) {
	for _, s := range l.cfg.Services {
		if s.Number == service {
			for _, i := range s.Instances {
				all = append(all, l.numbers[vniOf(s, i)])
			}
		}
	}
	return all
}

func vniOf(s topo.EdgeService, i topo.EdgeInstance) uint32 {
	return wire.Instance{Server: i.Server, Core: i.Core, Service: s.Number}.VNI()
}

func weightsOf(s topo.EdgeService) (all []float64) {
	for _, i := range s.Instances {
		all = append(all, i.Weight)
	}
	return all
}
