package lb

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/cilium/ebpf"

	"proffer/dataplane/objects"
	"proffer/topo"
)

// lists are the prefixes of the clients that services serve, by number. A list does not change: a service that
// serves others gets another list, and the old list goes when no packet reads it any more.
type lists struct {
	m    *ebpf.Map
	free []uint16 // the last is taken first
	have map[uint16][]netip.Prefix
}

func newLists(m *ebpf.Map) *lists {
	l := &lists{m: m, have: map[uint16][]netip.Prefix{}}
	for n := uint16(2 * topo.MaxServices); n > 0; n-- {
		l.free = append(l.free, n)
	}
	return l
}

// allowed is the key of a prefix (struct allowed of bpf/lb/allow.h).
func allowed(number uint16, p netip.Prefix) objects.LBAllowed {
	bits := p.Bits()
	if p.Addr().Is4() {
		bits += 96
	}
	key := objects.LBAllowed{Bits: 32 + uint32(bits), List: uint32(number)}
	key.Client.In6U.U6Addr8 = p.Addr().As16()
	return key
}

// take returns the number of a list of prefixes, 0 for none: that of the service's list of before if it is the same.
func (l *lists) take(prefixes []netip.Prefix, before uint16) (uint16, error) {
	switch {
	case len(prefixes) == 0:
		return 0, nil
	case slices.Equal(prefixes, l.have[before]):
		return before, nil
	case len(l.free) == 0:
		return 0, fmt.Errorf("no room for another list of clients: there are %d", len(l.have))
	}
	last := len(l.free) - 1
	number := l.free[last]
	l.free = l.free[:last]
	l.have[number] = prefixes
	for _, p := range prefixes {
		if err := l.m.Put(allowed(number, p), uint32(1)); err != nil {
			return 0, errors.Join(fmt.Errorf("allow the clients in %s: %w", p, err), l.give(number))
		}
	}
	return number, nil
}

// give frees a list that no packet reads.
func (l *lists) give(number uint16) (err error) {
	if number == 0 || l.have[number] == nil {
		return nil
	}
	for _, p := range l.have[number] {
		if e := l.m.Delete(allowed(number, p)); e != nil && !errors.Is(e, ebpf.ErrKeyNotExist) {
			err = errors.Join(err, fmt.Errorf("forget the clients in %s: %w", p, e))
		}
	}
	delete(l.have, number)
	l.free = append(l.free, number)
	return err
}
