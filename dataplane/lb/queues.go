package lb

import (
	"fmt"
	"sync/atomic"

	"proffer/dataplane"
	"proffer/topo"
)

// Begun reads how many flows each server of a service that chooses among all of them has begun.
func (l *LB) Begun(svc *topo.Service) ([]uint32, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	own, at := l.seatsOf(svc)
	if own == nil {
		return nil, fmt.Errorf("service %s has no tally", svc.Name)
	}
	begun := make([]uint32, len(at))
	for i, seat := range at {
		if seat >= 0 {
			begun[i] = atomic.LoadUint32(&own.Seat[seat].Begun)
		}
	}
	return begun, nil
}

// Queues gives new flows the requests in hand of some servers of a service. A seat that has begun fewer
// flows than at the request was another server's then, or this server's before it left.
func (l *LB) Queues(svc *topo.Service, queues []dataplane.Queue) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	own, at := l.seatsOf(svc)
	if own == nil {
		return fmt.Errorf("service %s has no tally", svc.Name)
	}
	for _, q := range queues {
		if seat := at[q.Server]; seat >= 0 {
			begun := atomic.LoadUint32(&own.Seat[seat].Begun)
			if since := int32(begun - q.Begun); since >= 0 {
				begun = q.Begun
			}
			atomic.StoreUint64(&own.Seat[seat].Reported, uint64(q.Requests)<<32|uint64(begun))
		}
	}
	return nil
}
