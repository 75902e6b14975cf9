package lb

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"

	"proffer/dataplane/objects"
	"proffer/plan"
	"proffer/topo"
)

// placed is a service in the maps.
type placed struct {
	record objects.LBService
	svc    plan.Service
	table  *ebpf.Map // held until no packet reads it: Linux before 6.1.75 frees a replaced map at once
}

// change is a service on its way into the maps.
type change struct {
	known    bool // old is how it stands there now
	keeps    bool // the record, and the slot of the table
	old, new placed
	restore  func() error // the seats of its servers
}

// remove leaves a service's packets to the kernel again.
func (l *LB) remove(vip topo.VIP) {
	l.records.delete(objects.ServiceKey(vip))
	l.tallies.leave(vip)
	l.retired = append(l.retired, l.services[vip])
	delete(l.services, vip)
}

// writeServices gives services their tables, and then records that name them. A record
// that stays is right for the old table and for the new table, which takes its slot.
func (l *LB) writeServices(steps []plan.Step, want *plan.State) (err error) {
	var changes []change
	defer func() {
		for _, c := range changes {
			err = errors.Join(err, l.abandon(&c))
		}
	}()
	for _, s := range steps {
		if s.Verb == plan.NameTable {
			break // as all tables stand in their slots
		}
		c, err := l.prepared(want.Service(s.VIP), s.Verb == plan.ReplaceTable)
		if err != nil {
			return fmt.Errorf("make the table of service %s: %w", s.Service, err)
		}
		changes = append(changes, c)
	}
	n, err := l.putTables(changes)
	put := changes[:n]
	changes = changes[n:]
	for _, c := range put {
		if e := l.commit(&c); e != nil {
			err = errors.Join(err, e)
			changes = append(changes, c)
		}
	}
	return err
}

// prepared makes a service's table, in no slot yet.
func (l *LB) prepared(svc *plan.Service, keeps bool) (c change, err error) {
	c.keeps, c.new.svc = keeps, *svc
	c.old, c.known = l.services[svc.VIP]
	c.restore = l.tallies.snapshot(svc)
	defer func() {
		if err != nil {
			err = errors.Join(err, c.restore())
		}
	}()
	tally, seats, err := l.tallies.take(svc, l.numbers)
	if err != nil {
		return c, err
	}
	if c.new.table, err = write(svc, l.numbers, seats); err != nil {
		return c, err
	}
	slot := c.old.record.Table
	if !keeps {
		if slot, err = l.slots.take(); err != nil {
			return c, errors.Join(err, c.new.table.Close())
		}
	}
	l.health.forget(slot)
	c.new.record = serviceRecord(&svc.Service, slot, svc.Buckets(), l.Dev.Load().MTU)
	c.new.record.Tally = tally
	if c.new.record.Allow, err = l.lists.take(svc.Allow, c.old.record.Allow); err != nil {
		return c, errors.Join(err, c.new.table.Close())
	}
	return c, nil
}

// abandon frees a table that no record names, and gives servers their seats back.
func (l *LB) abandon(c *change) error {
	if c.keeps {
		c.new.table.Close() // the old table is in the slot
	} else {
		l.retired = append(l.retired, c.new)
	}
	return c.restore()
}

func (l *LB) putTables(changes []change) (int, error) {
	var at []uint32
	var tables []*ebpf.Map
	for _, c := range changes {
		at, tables = append(at, c.new.record.Table), append(tables, c.new.table)
	}
	return l.slots.put(at, tables)
}

// commit makes a service's record name its new table.
func (l *LB) commit(c *change) error {
	if err := l.records.put(c.new.record); err != nil { // nothing, where it keeps
		return err
	}
	l.services[c.new.svc.VIP] = c.new
	switch {
	case !c.known:
		return nil
	case c.keeps:
		return c.old.table.Close()
	default:
		l.retired = append(l.retired, c.old)
		return nil
	}
}

// release frees the tables that no record names any more.
func (l *LB) release() error {
	var at []uint32
	for _, p := range l.retired {
		at = append(at, p.record.Table)
	}
	err := l.slots.giveBack(at)
	for _, p := range l.retired {
		err = errors.Join(err, p.table.Close())
		if now, served := l.services[p.svc.VIP]; !served || now.record.Allow != p.record.Allow {
			err = errors.Join(err, l.lists.give(p.record.Allow))
		}
	}
	l.retired = nil
	return err
}

// markVIPs marks every VIP: with the service that takes its fragments, if any.
func (l *LB) markVIPs(state *plan.State) error {
	want := map[objects.LBServiceKey]objects.LBService{}
	for addr, mark := range state.Marks() {
		record := l.services[mark.VIP].record // empty: no service
		record.Key = objects.ServiceKey(topo.VIP{Addr: addr})
		record.Key.Protocol = 0
		want[record.Key] = record
	}
	for key := range l.records.have {
		if _, ok := want[key]; key.PortBe == 0 && !ok {
			l.records.delete(key)
		}
	}
	for _, record := range want {
		if err := l.records.put(record); err != nil {
			return fmt.Errorf("mark a VIP: %w", err)
		}
	}
	return nil
}

// serviceRecord is a service as the program reads it.
func serviceRecord(svc *topo.Service, slot uint32, buckets, mtu int) objects.LBService {
	r := objects.LBService{
		Key:       objects.ServiceKey(svc.VIP),
		Table:     slot,
		Buckets:   uint32(buckets),
		Dispatch:  uint8(svc.Dispatch),
		Wire:      uint8(svc.Wire),
		Fragments: uint8(svc.Fragments),
		Recovery:  uint8(svc.Recovery),
		Vias:      uint8(len(svc.Via)),
		Mtu:       roomIn(svc, mtu),
		Affinity:  affinityTicks(svc),
	}
	for i, via := range svc.Via {
		r.Via[i].In6U.U6Addr8 = via.As16()
	}
	return r
}

// roomIn is the longest packet of the service that fits the MTU with our headers.
func roomIn(svc *topo.Service, mtu int) uint16 {
	return uint16(max(0, min(mtu-plan.LongestHeader(svc), 0xffff)))
}

// affinityTicks is the time of a service's affinity in the ticks of the flow table, rounded up; 0: it has none.
func affinityTicks(svc *topo.Service) uint16 {
	if svc.Affinity == topo.NoAffinity {
		return 0
	}
	return uint16(svc.AffinityTime>>seenShift) + 1
}
