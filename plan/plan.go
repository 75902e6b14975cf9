package plan

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"proffer/topo"
)

// TablesAtOnce bounds the memory of new tables beside the old tables, at 32 bytes a list.
const TablesAtOnce = 64

// Plan is the way from a state to another.
type Plan struct {
	Have, Want *State
	Steps      []Step
}

// New plans the way from have to want. Servers come before the tables that list them,
// a table before the record that names it, and a server, a record or a table is
// removed after the packets that may read it.
func New(have, want *State) *Plan {
	p := &Plan{Have: have, Want: want}
	p.keys()
	p.join()
	p.services()
	p.marks()
	p.release()
	p.leave()
	return p
}

func (p *Plan) add(s Step) { p.Steps = append(p.Steps, s) }

// has reports whether the plan has a step of any of these verbs.
func (p *Plan) has(verbs ...Verb) bool {
	return slices.ContainsFunc(p.Steps, func(s Step) bool { return slices.Contains(verbs, s.Verb) })
}

func (p *Plan) keys() {
	if !p.Have.Torn && slices.Equal(p.Have.Keys, p.Want.Keys) {
		return
	}
	var ids []string
	for _, k := range p.Want.Keys {
		ids = append(ids, fmt.Sprint(k.ID))
	}
	p.add(Step{Verb: SetKeys, Keys: strings.Join(ids, ", ")})
}

// join adds the servers that a service did not have, or that it has by another delivery. The keys of all servers are
// derived again if the servers or the farm's keys changed.
func (p *Plan) join() {
	eachBeyond(p.Want, p.Have, wayTo, func(svc *Service, s topo.Server) {
		p.add(Step{Verb: AddServer, Service: svc.Name, Server: s})
	})
	leaves := len(p.Have.Strangers) > 0
	eachBeyond(p.Have, p.Want, (*topo.Server).ID, func(*Service, topo.Server) { leaves = true })
	if p.has(SetKeys) || len(p.Want.Keys) > 0 && (leaves || p.has(AddServer)) {
		p.add(Step{Verb: DeriveKeys, Count: len(p.Want.Servers())})
	}
}

// wayTo is all that the record of a server is made from.
func wayTo(s *topo.Server) topo.Server {
	way := *s
	way.Name, way.Weight = "", 0
	return way
}

// eachBeyond visits the servers of the services of a that those of b do not have, by a key.
func eachBeyond[K comparable](a, b *State, key func(*topo.Server) K, visit func(*Service, topo.Server)) {
	others := b.byVIP()
	for i := range a.Services {
		svc := &a.Services[i]
		var there map[K]bool
		if other := others[svc.VIP]; other != nil {
			if slices.Equal(other.Servers, svc.Servers) {
				continue
			}
			there = map[K]bool{}
			for i := range other.Servers {
				there[key(&other.Servers[i])] = true
			}
		}
		for i := range svc.Servers {
			if !there[key(&svc.Servers[i])] {
				visit(svc, svc.Servers[i])
			}
		}
	}
}

func (s *State) byVIP() map[topo.VIP]*Service {
	all := make(map[topo.VIP]*Service, len(s.Services))
	for i := range s.Services {
		all[s.Services[i].VIP] = &s.Services[i]
	}
	return all
}

// services makes room first. A record that stays is right for the old table and for the
// new table, which takes its slot.
func (p *Plan) services() {
	wanted := p.Want.byVIP()
	for i := range p.Have.Services {
		if svc := &p.Have.Services[i]; wanted[svc.VIP] == nil {
			p.add(about(RemoveService, svc))
		}
	}
	known := p.Have.byVIP()
	var tables, names []Step
	flush := func() {
		p.Steps = append(append(p.Steps, tables...), names...)
		tables, names = nil, nil
	}
	for i := range p.Want.Services {
		svc := &p.Want.Services[i]
		old := known[svc.VIP]
		switch {
		case old != nil && sameRecord(old, svc) && old.made == svc.made:
			continue
		case old != nil && sameRecord(old, svc):
			s := about(ReplaceTable, svc)
			s.Count, s.Changed = svc.Buckets(), changed(old, svc)
			tables = append(tables, s)
		default:
			s, name := about(MakeTable, svc), about(NameTable, svc)
			s.Count, name.First = svc.Buckets(), old == nil
			tables, names = append(tables, s), append(names, name)
		}
		if len(tables) == TablesAtOnce {
			flush()
		}
	}
	flush()
}

// Mark is the service that gets the fragments to an address, or none.
type Mark struct {
	Service string
	VIP     topo.VIP
}

// Marks are the addresses of all services.
func (s *State) Marks() map[netip.Addr]Mark {
	marks := map[netip.Addr]Mark{}
	for i := range s.Services {
		svc := &s.Services[i]
		if svc.Fragments == topo.HashFragments {
			marks[svc.VIP.Addr] = Mark{svc.Name, svc.VIP}
		} else if _, marked := marks[svc.VIP.Addr]; !marked {
			marks[svc.VIP.Addr] = Mark{}
		}
	}
	return marks
}

// marks follow the records that they are copies of.
func (p *Plan) marks() {
	have, want, renamed := p.Have.Marks(), p.Want.Marks(), map[topo.VIP]bool{}
	for _, s := range p.Steps {
		if s.Verb == NameTable {
			renamed[s.VIP] = true
		}
	}
	for _, addr := range sorted(have) {
		if _, wanted := want[addr]; !wanted {
			p.add(mark(UnmarkVIP, addr, ""))
		}
	}
	for _, addr := range sorted(want) {
		was, marked := have[addr]
		if now := want[addr]; !marked || was.VIP != now.VIP || renamed[now.VIP] || p.Have.Torn {
			p.add(mark(MarkVIP, addr, now.Service))
		}
	}
}

func sorted(marks map[netip.Addr]Mark) []netip.Addr {
	addrs := make([]netip.Addr, 0, len(marks))
	for addr := range marks {
		addrs = append(addrs, addr)
	}
	slices.SortFunc(addrs, netip.Addr.Compare)
	return addrs
}

// release frees the tables of records that were replaced or removed, once no packet
// reads these records.
func (p *Plan) release() {
	var freed []Step
	for _, s := range p.Steps {
		if s.Verb == RemoveService || s.Verb == NameTable && !s.First {
			freed = append(freed, Step{Verb: FreeTable, Service: s.Service, VIP: s.VIP})
		}
	}
	marks := p.Have.Marks()
	remarked := slices.ContainsFunc(p.Steps, func(s Step) bool {
		_, marked := marks[s.VIP.Addr]
		return s.Verb == UnmarkVIP || s.Verb == MarkVIP && marked
	})
	if len(freed) > 0 || remarked {
		p.add(Step{Verb: Wait})
	}
	p.Steps = append(p.Steps, freed...)
}

// leave removes servers from services; a server without a service leaves the LB.
func (p *Plan) leave() {
	eachBeyond(p.Have, p.Want, (*topo.Server).ID, func(svc *Service, s topo.Server) {
		p.add(Step{Verb: RemoveServer, Service: svc.Name, Server: s})
	})
	wanted := map[[8]byte]bool{}
	for _, s := range p.Want.Servers() {
		wanted[s.ID()] = true
	}
	for _, s := range p.Have.Strangers {
		if !wanted[s.ID()] {
			p.add(Step{Verb: RemoveServer, Server: s})
		}
	}
}

// Equal reports whether two plans have the same steps.
func (p *Plan) Equal(q *Plan) bool { return slices.Equal(p.Steps, q.Steps) }

// String prints a line a step.
func (p *Plan) String() string {
	var b strings.Builder
	for _, s := range p.Steps {
		fmt.Fprintln(&b, s)
	}
	return b.String()
}

// Summary counts the steps that matter most to an operator.
func (p *Plan) Summary() string {
	var parts []string
	for _, c := range []struct {
		verb       Verb
		noun, done string
	}{
		{AddServer, "server", "added"}, {RemoveService, "service", "removed"}, {ReplaceTable, "table", "replaced"},
		{MakeTable, "table", "made"}, {RemoveServer, "server", "removed"},
	} {
		n := 0
		for _, s := range p.Steps {
			if s.Verb == c.verb {
				n++
			}
		}
		if n > 1 {
			c.noun += "s"
		}
		if n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s %s", n, c.noun, c.done))
		}
	}
	if p.has(SetKeys) {
		parts = append(parts, "other keys")
	}
	if p.marksOther() {
		parts = append(parts, "other fragments")
	}
	if parts == nil {
		return "nothing changes"
	}
	return strings.Join(parts, ", ")
}

// marksOther reports whether fragments to an address that had services before, and has now, are treated
// otherwise.
func (p *Plan) marksOther() bool {
	have := p.Have.Marks()
	for addr, now := range p.Want.Marks() {
		if was, known := have[addr]; known && was != now {
			return true
		}
	}
	return false
}

// Phases are the runs of steps that a data plane executes together.
func (p *Plan) Phases() (phases [][]Step) {
	for at := 0; at < len(p.Steps); {
		end := at + 1
		for end < len(p.Steps) && together(p.Steps[end-1].Verb, p.Steps[end].Verb) {
			end++
		}
		phases = append(phases, p.Steps[at:end])
		at = end
	}
	return phases
}

// together reports whether a step is executed with the step before.
func together(before, after Verb) bool {
	switch after {
	case ReplaceTable, MakeTable:
		return before == ReplaceTable || before == MakeTable
	case NameTable:
		return before != RemoveService && before >= ReplaceTable && before <= NameTable
	case MarkVIP:
		return before == MarkVIP || before == UnmarkVIP
	}
	return before == after
}
