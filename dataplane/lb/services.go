package lb

import (
	"errors"
	"fmt"
	"slices"

	"github.com/cilium/ebpf"

	"proffer/dataplane/objects"
	"proffer/topo"
)

// placed is a service as it stands in the maps.
type placed struct {
	record objects.LBService
	from   fingerprint // of the pools that its table is made from
	table  *ebpf.Map   // held until no packet reads it: Linux before 6.1.75 frees a replaced one at once
}

// change is a service on its way into the maps.
type change struct {
	vip      topo.VIP
	known    bool // old is how it stands there now
	old, new placed
}

func (c *change) keepsRecord() bool { return c.known && c.new.record == c.old.record }

// tablesAtOnce bounds the memory of new tables beside the old ones, at 32 bytes a
// bucket. Any number of tables is replaced in one wait.
const tablesAtOnce = 64

// setServices makes the services those of a configuration. Those that go make
// room first; the tables that no packet reads any more end last, those of a
// configuration that failed among them.
func (l *LB) setServices(services []topo.Service) error {
	if len(services) > topo.MaxServices {
		return fmt.Errorf("%d services: at most %d", len(services), topo.MaxServices)
	}
	err := l.replaceServices(services)
	if e := l.markVIPs(services); e != nil {
		return errors.Join(err, e) // a mark may still name an old table
	}
	return errors.Join(err, l.release())
}

func (l *LB) replaceServices(services []topo.Service) error {
	if err := l.removeOthers(services); err != nil {
		return err
	}
	for some := range slices.Chunk(services, tablesAtOnce) {
		if err := l.writeServices(some); err != nil {
			return err
		}
	}
	l.tables.forget()
	return nil
}

func (l *LB) removeOthers(services []topo.Service) error {
	wanted := map[topo.VIP]bool{}
	for i := range services {
		wanted[services[i].VIP] = true
	}
	for vip, at := range l.services {
		if wanted[vip] {
			continue
		}
		l.records.delete(objects.ServiceKey(vip))
		l.retired = append(l.retired, at)
		delete(l.services, vip)
	}
	return nil
}

// writeServices gives services their tables, and then records that name them.
// Where the record stays, it is right for the table before and for this one,
// which takes its slot.
func (l *LB) writeServices(services []topo.Service) error {
	var changes []change
	defer func() {
		for _, c := range changes {
			l.abandon(&c)
		}
	}()
	for i := range services {
		c, err := l.prepared(&services[i])
		if err != nil {
			return fmt.Errorf("make the table of service %s: %w", services[i].Name, err)
		}
		if c != nil {
			changes = append(changes, *c)
		}
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

// prepared makes a service's table, in no slot yet. nil: it stands there already.
func (l *LB) prepared(svc *topo.Service) (*change, error) {
	built, err := l.tables.of(svc)
	if err != nil {
		return nil, err
	}
	c := &change{vip: svc.VIP}
	c.old, c.known = l.services[svc.VIP]
	c.new.from = built.from
	c.new.record = serviceRecord(svc, c.old.record.Table, built.buckets(), l.Dev.MTU)
	if c.keepsRecord() && c.new.from == c.old.from {
		return nil, nil
	}
	if c.new.table, err = built.write(svc, l.numbers); err != nil {
		return nil, err
	}
	if c.keepsRecord() {
		return c, nil
	}
	if c.new.record.Table, err = l.slots.take(); err != nil {
		return nil, errors.Join(err, c.new.table.Close())
	}
	return c, nil
}

// abandon gives up a table that no record names.
func (l *LB) abandon(c *change) {
	if c.keepsRecord() {
		c.new.table.Close() // the old one is in the slot
	} else {
		l.retired = append(l.retired, c.new)
	}
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
	if err := l.records.put(c.new.record); err != nil {
		return err
	}
	l.services[c.vip] = c.new
	switch {
	case !c.known:
		return nil
	case c.keepsRecord():
		return c.old.table.Close()
	default:
		l.retired = append(l.retired, c.old)
		return nil
	}
}

// release ends the tables that no record names any more.
func (l *LB) release() error {
	if err := l.records.settle(); err != nil {
		return err
	}
	var at []uint32
	for _, p := range l.retired {
		at = append(at, p.record.Table)
	}
	err := l.slots.giveBack(at)
	for _, p := range l.retired {
		err = errors.Join(err, p.table.Close())
	}
	l.retired = nil
	return err
}

// markVIPs marks every VIP: with the service that takes its fragments, if any.
func (l *LB) markVIPs(services []topo.Service) error {
	want := map[objects.LBServiceKey]objects.LBService{}
	for i := range services {
		svc := &services[i]
		mark := objects.ServiceKey(topo.VIP{Addr: svc.VIP.Addr})
		mark.Protocol = 0
		if svc.Fragments == topo.HashFragments {
			record := l.services[svc.VIP].record
			record.Key = mark
			want[mark] = record
		} else if _, marked := want[mark]; !marked {
			want[mark] = objects.LBService{Key: mark}
		}
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
		Vias:      uint8(len(svc.Via)),
		Mtu:       uint16(min(mtu-longestHeader(svc), 0xffff)),
	}
	for i, via := range svc.Via {
		r.Via[i].In6U.U6Addr8 = via.As16()
	}
	return r
}

// longestHeader is the header that a client's packet leaves room for: a question to as many
// servers as an offer has, and the way back (docs/wire.md).
func longestHeader(svc *topo.Service) int {
	n := len(svc.Via) + 1
	if svc.Dispatch.Signals() {
		n += svc.Candidates()
	}
	switch {
	case svc.Wire == topo.Insert:
		return 8 + 16*(n+2)
	case n == 1:
		return 40
	default:
		return 40 + 8 + 16*(n-1)
	}
}
