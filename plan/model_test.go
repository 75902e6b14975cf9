package plan

import (
	"fmt"
	"net/netip"
	"slices"

	"proffer/topo"
)

// record is a service's record as packets read it: settings, and a slot.
type record struct {
	settings *Service
	slot     int
}

// retired is a slot that no record names; packets may read it until a wait.
type retired struct {
	slot   int
	waited bool
}

// model is a data plane without a kernel.
type model struct {
	want    *State
	keys    []topo.SignalKey
	servers map[[8]byte]bool
	tables  map[int]*Service // by slot
	records map[topo.VIP]record
	marks   map[netip.Addr]record
	made    map[topo.VIP]int // slots that no record names yet
	left    map[topo.VIP]retired
	slots   int
	unread  int // records of marks that were replaced, without a wait since
}

func newModel() *model {
	return &model{
		servers: map[[8]byte]bool{}, tables: map[int]*Service{}, records: map[topo.VIP]record{},
		marks: map[netip.Addr]record{}, made: map[topo.VIP]int{}, left: map[topo.VIP]retired{},
	}
}

// apply executes a step.
func (m *model) apply(s Step) error {
	switch s.Verb {
	case SetKeys:
		m.keys = m.want.Keys
	case AddServer:
		m.servers[s.Server.ID()] = true
	case RemoveServer:
		return m.removeServer(s.Server)
	case Wait:
		m.unread = 0
		for vip, r := range m.left {
			m.left[vip] = retired{r.slot, true}
		}
	case FreeTable:
		return m.free(s.VIP)
	case MarkVIP:
		if _, marked := m.marks[s.VIP.Addr]; marked {
			m.unread++
		}
		m.marks[s.VIP.Addr] = m.records[m.want.Marks()[s.VIP.Addr].VIP]
	case UnmarkVIP:
		m.unread++
		delete(m.marks, s.VIP.Addr)
	case DeriveKeys:
	default:
		return m.service(s)
	}
	return nil
}

// service executes a step of a service's table or record.
func (m *model) service(s Step) error {
	svc, old := m.want.Service(s.VIP), m.records[s.VIP]
	switch s.Verb {
	case MakeTable:
		m.slots++
		m.tables[m.slots], m.made[s.VIP] = svc, m.slots
	case ReplaceTable:
		if old.settings == nil || !sameRecord(old.settings, svc) {
			return fmt.Errorf("%s: its record is another one", s)
		}
		m.tables[old.slot] = svc
	case NameTable:
		if old.settings != nil {
			m.left[s.VIP] = retired{slot: old.slot}
		}
		m.records[s.VIP] = record{svc, m.made[s.VIP]}
		delete(m.made, s.VIP)
	case RemoveService:
		m.left[s.VIP] = retired{slot: old.slot}
		delete(m.records, s.VIP)
	}
	return nil
}

func (m *model) free(vip topo.VIP) error {
	r, ok := m.left[vip]
	if !ok || !r.waited {
		return fmt.Errorf("free slot %d of %v: packets may read it", r.slot, vip)
	}
	for addr, mark := range m.marks {
		if mark.slot == r.slot {
			return fmt.Errorf("free slot %d: %v is marked with it", r.slot, addr)
		}
	}
	delete(m.left, vip)
	delete(m.tables, r.slot)
	return nil
}

func (m *model) removeServer(s topo.Server) error {
	wanted := slices.ContainsFunc(m.want.Servers(), func(o topo.Server) bool { return o.ID() == s.ID() })
	if !wanted {
		delete(m.servers, s.ID())
	}
	return nil
}

// readable reports a table that a packet may read and that lists an unknown server.
func (m *model) readable() error {
	for slot, svc := range m.tables {
		for _, s := range svc.Servers {
			if !m.servers[s.ID()] {
				return fmt.Errorf("the table in slot %d lists %s, which has no number", slot, s.Name)
			}
		}
	}
	return nil
}

// whole reports whether each service is as it was or as it is wanted.
func (m *model) whole(have, want *State) error {
	for vip, r := range m.records {
		table := m.tables[r.slot]
		if table == nil {
			return fmt.Errorf("%v names slot %d, which is empty", vip, r.slot)
		}
		if !is(r.settings, table, have.Service(vip)) && !is(r.settings, table, want.Service(vip)) {
			return fmt.Errorf("%v is neither as before nor as wanted", vip)
		}
	}
	for i := range have.Services {
		vip := have.Services[i].VIP
		if _, there := m.records[vip]; !there && want.Service(vip) != nil {
			return fmt.Errorf("%v is gone for a while", vip)
		}
	}
	return m.readable()
}

// is reports whether settings and table are those of svc.
func is(settings, table, svc *Service) bool {
	return svc != nil && sameRecord(settings, svc) && table.made == svc.made
}

// reached reports in which way the model differs from want.
func (m *model) reached(want *State) error {
	switch {
	case len(m.records) != len(want.Services) || len(m.tables) != len(want.Services) || len(m.made)+len(m.left) > 0:
		return fmt.Errorf("%d services, %d tables, %d made, %d left, for %d services", len(m.records), len(m.tables), len(m.made), len(m.left), len(want.Services))
	case m.unread > 0:
		return fmt.Errorf("%d records of marks were replaced or removed and never waited for", m.unread)
	case len(m.servers) != len(want.Servers()):
		return fmt.Errorf("%d servers, not %d", len(m.servers), len(want.Servers()))
	case !slices.Equal(m.keys, want.Keys):
		return fmt.Errorf("keys %v, not %v", m.keys, want.Keys)
	case len(m.marks) != len(want.Marks()):
		return fmt.Errorf("%d addresses marked, not %d", len(m.marks), len(want.Marks()))
	}
	for i := range want.Services {
		svc := &want.Services[i]
		if r := m.records[svc.VIP]; !is(r.settings, m.tables[r.slot], svc) {
			return fmt.Errorf("%v is not as wanted", svc.VIP)
		}
	}
	for addr, mark := range want.Marks() {
		if got := m.marks[addr]; got.slot != m.records[mark.VIP].slot {
			return fmt.Errorf("%v is marked with slot %d, not %d", addr, got.slot, m.records[mark.VIP].slot)
		}
	}
	return nil
}
