package lb

import (
	"errors"
	"fmt"

	"proffer/dataplane/internal/plane"
)

// Follow is plane.Follow, and gives the programs the link's IP addresses, and the services' records the new MTU.
func (l *LB) Follow() (changed string, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	was := l.Dev.Load().MTU
	changed, err = l.Plane.Follow()
	err = errors.Join(err, l.speak())
	if err != nil || l.Dev.Load().MTU == was {
		return changed, err
	}
	for vip, at := range l.services {
		at.record.Mtu = roomIn(&at.svc.Service, l.Dev.Load().MTU)
		if err := l.records.put(at.record); err != nil {
			return changed, err
		}
		l.services[vip] = at
	}
	if err := l.markVIPs(l.state); err != nil {
		return changed, err
	}
	return changed, l.records.settle()
}

// speak gives the programs the addresses that errors about packets are sent from.
func (l *LB) speak() error {
	own, err := plane.ReadAddresses()
	if err != nil {
		return err
	}
	from := own.Speakers(l.Dev.Load().Index)
	if from == l.speaks {
		return nil
	}
	if err := l.objs.LinkAddresses.Set(from); err != nil {
		return fmt.Errorf("write the addresses of %s: %w", l.Dev.Load().Name, err)
	}
	l.speaks = from
	return nil
}
