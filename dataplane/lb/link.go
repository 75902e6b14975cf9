package lb

// Follow is plane.Follow, and gives the services' records the new MTU.
func (l *LB) Follow() (changed string, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	was := l.Dev.Load().MTU
	changed, err = l.Plane.Follow()
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
