package lb

import (
	"sync/atomic"

	"proffer/dataplane/objects"
	"proffer/topo"
)

// Bits of a word of bpf/lb/flow.h and learned_word.h.
const (
	establishedInWord = 1 << 14
	learnedInWord     = 1 << 47
	udpInWord         = 1 << 52
	serviceInWord     = 0x7ff << 52
	keptInWord        = 1 << 63

	closedByBoth  = 3 << 48
	closedByReset = 4 << 48
)

// Connections counts the established flows at each server of services: by their seats, or by the
// entries of the table. One service in 1,024 shares the bits with which entries name another service.
func (l *LB) Connections(services []topo.Service) ([][]uint32, error) {
	l.mu.Lock()
	all, places := make([][]uint32, len(services)), map[uint64]*uint32{}
	for i := range services {
		all[i] = make([]uint32, len(services[i].Servers))
		l.place(&services[i], all[i], places)
	}
	l.mu.Unlock()
	if len(places) == 0 {
		return all, nil
	}
	return all, l.eachTable(func(lines []objects.LBLine) { countOpen(places, lines) })
}

// countOpen counts the entries of a table at places.
func countOpen(places map[uint64]*uint32, lines []objects.LBLine) {
	for i := range lines {
		for k := range lines[i].Word {
			word := atomic.LoadUint64(&lines[i].Word[k])
			if place := places[word&(serviceInWord|serverInWord)]; place != nil && isOpen(word) {
				*place++
			}
		}
	}
}

// place counts the flows in a service's seats. If it has none, it adds the places where entries count.
func (l *LB) place(svc *topo.Service, counts []uint32, places map[uint64]*uint32) {
	if own, seats := l.seatsOf(svc); own != nil {
		for i, seat := range seats {
			if seat >= 0 {
				counts[i], _ = counted(&own.Seat[seat])
			}
		}
		return
	}
	for i, number := range l.numbers.ofPool(svc.Servers) {
		if number != noServer {
			places[serviceBits(svc.VIP)|uint64(number)] = &counts[i]
		}
	}
}

// serviceBits is service_bits of bpf/lb/flow.h.
func serviceBits(vip topo.VIP) uint64 {
	key := objects.ServiceKey(vip)
	bits := serviceHash(&key) & (serviceInWord &^ udpInWord)
	if vip.Protocol == topo.UDP {
		bits |= udpInWord
	}
	return bits
}

// isOpen: the word is of a flow without a seat that is established, and not over.
func isOpen(word uint64) bool {
	if word&establishedInWord == 0 || word&keptInWord != 0 && word&learnedInWord != 0 {
		return false
	}
	return word&closedByReset == 0 && word&closedByBoth != closedByBoth
}
