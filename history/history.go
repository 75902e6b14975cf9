// Package history is an LB's record of the pools that it has served: in memory, and in a
// file that outlives the daemon and the machine's restarts. By it flows of earlier pools are
// recovered, and a configuration that goes back to an earlier version is noticed.
package history

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"proffer/topo"
)

// Most is the number of earlier pools of a service that are recorded, and recovered from.
const Most = 32

// Record has the pools that an LB has served. It never changes: Next returns another record.
type Record struct {
	of       string // as the file has it
	services map[topo.VIP]served
}

// served is a service's pool of now, and those before, the newest first.
type served struct {
	now  topo.Version
	past []past
}

// past is a pool that another pool has followed.
type past struct {
	topo.Version
	until time.Time     // by the wall clock, which outlives the machine's restarts
	left  time.Duration // the same by the clock that never jumps; for this daemon alone
}

// Moment is a time by both clocks.
type Moment struct {
	Wall   time.Time
	Steady time.Duration
}

// Next is the record after cfg has begun to be served. Pools that are over, by forget, go.
func (r *Record) Next(cfg *topo.LB, at Moment, forget func(topo.VIP, topo.Version, time.Duration) bool) *Record {
	next := &Record{services: map[topo.VIP]served{}}
	for i := range cfg.Services {
		svc := &cfg.Services[i]
		was, known := r.services[svc.VIP]
		is := served{now: topo.Version{Version: svc.Version, Servers: slices.Clone(svc.Servers)}, past: slices.Clone(was.past)}
		if known && !samePool(was.now, is.now) { // a number alone makes no pool
			is.past = slices.Insert(is.past, 0, past{was.now, at.Wall, at.Steady})
		}
		is.past = slices.DeleteFunc(is.past, func(p past) bool { return forget(svc.VIP, p.Version, at.Steady-p.left) })
		is.past = is.past[:min(len(is.past), Most)]
		next.services[svc.VIP] = is
	}
	return next
}

// Same reports whether two pools make the same tables, under the same version.
func Same(a, b topo.Version) bool { return a.Version == b.Version && samePool(a, b) }

func samePool(a, b topo.Version) bool {
	same := func(x, y topo.Server) bool { return x.At() == y.At() && x.Weight == y.Weight }
	return slices.EqualFunc(a.Servers, b.Servers, same)
}

// Equal reports whether two records have the same pools.
func (r *Record) Equal(o *Record) bool {
	if len(r.services) != len(o.services) {
		return false
	}
	for vip, a := range r.services {
		b, known := o.services[vip]
		same := func(x, y past) bool { return Same(x.Version, y.Version) }
		if !known || !Same(a.now, b.now) || !slices.EqualFunc(a.past, b.past, same) {
			return false
		}
	}
	return true
}

// Newest is the version that a service has now.
func (r *Record) Newest(vip topo.VIP) (version int, known bool) {
	s, known := r.services[vip]
	return s.now.Version, known
}

// sorted lists the services, always in the same order.
func (r *Record) sorted() []topo.VIP {
	return slices.SortedFunc(maps.Keys(r.services), func(a, b topo.VIP) int {
		return cmp.Or(a.Addr.Compare(b.Addr), cmp.Compare(a.Port, b.Port), cmp.Compare(a.Protocol, b.Protocol))
	})
}

// Services are the recorded services with their pools, with versions that fall from each pool
// to the pool before, as a configuration has them.
func (r *Record) Services() (all []topo.Service) {
	for _, vip := range r.sorted() {
		s := r.services[vip]
		svc := topo.Service{VIP: vip, Version: s.now.Version, Servers: s.now.Servers}
		falls, last := true, s.now.Version
		for _, p := range s.past {
			svc.History = append(svc.History, p.Version)
			falls, last = falls && p.Version.Version < last, p.Version.Version
		}
		if !falls {
			svc.Version = max(s.now.Version, len(s.past))
			for i := range svc.History {
				svc.History[i].Version = svc.Version - 1 - i
			}
		}
		all = append(all, svc)
	}
	return all
}

// Past is the number of a service's earlier pools.
func (r *Record) Past(vip topo.VIP) int { return len(r.services[vip].past) }

// Complete returns cfg with the recorded pools in the histories of its services, beside those
// that the file shares with other LBs: the newest first, each once.
func (r *Record) Complete(cfg *topo.LB) *topo.LB {
	full := *cfg
	full.Services = slices.Clone(cfg.Services)
	for i := range full.Services {
		svc := &full.Services[i]
		var all []topo.Version
		for _, p := range r.services[svc.VIP].past {
			all = append(all, p.Version)
		}
		for _, v := range svc.History {
			if !slices.ContainsFunc(all, func(o topo.Version) bool { return Same(o, v) }) {
				all = append(all, v)
			}
		}
		slices.SortStableFunc(all, func(a, b topo.Version) int { return cmp.Compare(b.Version, a.Version) })
		svc.History = all[:min(len(all), Most)]
	}
	return &full
}
