// Package plan brings a load balancer from the configuration that its data
// plane holds to the next configuration, as a list of steps in an order that is safe while
// packets flow. A plan is a value: it can be printed, compared and tested without a
// kernel. dataplane/lb executes it.
package plan

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"net/netip"
	"reflect"
	"slices"

	"proffer/table"
	"proffer/topo"
)

// State is a configuration as packets meet it, now or after a plan.
type State struct {
	Keys      []topo.SignalKey
	Services  []Service
	Strangers []topo.Server // that have a number and belong to no service: of an earlier daemon
	Torn      bool          // a plan failed half-way: keys may be those before or those after
	built     map[fingerprint]*table.Table
}

// Service is a service with its tables.
type Service struct {
	topo.Service
	Tables []*table.Table // of today's pool, then of each pool in the history
	made   fingerprint    // of all that Tables are made from
}

// Buckets is the number of lists.
func (s *Service) Buckets() int { return s.Tables[0].Buckets() }

// fingerprint tells apart the pools that tables are made from.
type fingerprint [sha256.Size]byte

func fingerprintOf(svc *topo.Service, pool []topo.Server) fingerprint {
	made := make([]byte, 0, 20*len(pool)+12)
	made = binary.LittleEndian.AppendUint32(made, uint32(svc.Dispatch)<<8|uint32(svc.Select))
	made = binary.LittleEndian.AppendUint32(made, uint32(svc.Buckets))
	made = binary.LittleEndian.AppendUint32(made, uint32(svc.Choices))
	for _, s := range pool {
		at := s.At().As16()
		made = append(made, at[:]...)
		made = binary.LittleEndian.AppendUint32(made, uint32(s.Weight))
	}
	return sha256.Sum256(made)
}

// Want builds the state of a configuration. Tables of the state have are not built
// again: after a change of the pool the table before is of the history.
func Want(cfg *topo.LB, have *State) (*State, error) {
	if len(cfg.Services) > topo.MaxServices {
		return nil, fmt.Errorf("%d services: at most %d", len(cfg.Services), topo.MaxServices)
	}
	want := &State{Keys: slices.Clone(cfg.Keys), built: map[fingerprint]*table.Table{}}
	for i := range cfg.Services {
		svc, err := want.service(&cfg.Services[i], have)
		if err != nil {
			return nil, fmt.Errorf("make the table of service %s: %w", cfg.Services[i].Name, err)
		}
		want.Services = append(want.Services, svc)
	}
	return want, nil
}

func (s *State) service(svc *topo.Service, have *State) (Service, error) {
	made := Service{Service: *svc}
	made.Servers, made.Via = slices.Clone(svc.Servers), slices.Clone(svc.Via)
	today, from, err := s.table(svc, svc.Servers, have)
	if err != nil {
		return made, err
	}
	made.Tables, made.made = []*table.Table{today}, from
	for _, v := range svc.Past() {
		past, from, err := s.table(svc, v.Servers, have)
		if err != nil {
			return made, fmt.Errorf("version %d: %w", v.Version, err)
		}
		made.Tables = append(made.Tables, past)
		made.made = sha256.Sum256(append(made.made[:], from[:]...))
	}
	return made, nil
}

func (s *State) table(svc *topo.Service, pool []topo.Server, have *State) (*table.Table, fingerprint, error) {
	from := fingerprintOf(svc, pool)
	known := s.built[from]
	if known == nil {
		known = have.built[from]
	}
	if known == nil {
		var err error
		if known, err = table.Of(svc, pool); err != nil {
			return nil, from, err
		}
	}
	s.built[from] = known
	return known, from, nil
}

// Held is the state of a data plane in which a plan towards want has failed: the
// services that it holds, and the servers that have a number beside theirs.
func Held(services []Service, strangers []topo.Server) *State {
	return &State{Services: services, Strangers: strangers, Torn: true}
}

// Service is the service at a VIP, or nil.
func (s *State) Service(vip topo.VIP) *Service {
	for i := range s.Services {
		if s.Services[i].VIP == vip {
			return &s.Services[i]
		}
	}
	return nil
}

// Servers are the servers of all services, each once.
func (s *State) Servers() (all []topo.Server) {
	seen := map[[8]byte]bool{}
	for i := range s.Services {
		for _, server := range s.Services[i].Servers {
			if id := server.ID(); !seen[id] {
				seen[id] = true
				all = append(all, server)
			}
		}
	}
	return all
}

// LongestHeader is the header that a client's packet leaves room for: a question to as
// many servers as an offer has, and the way back (docs/design/wire.md); or the longest of any server's
// delivery.
func LongestHeader(svc *topo.Service) int {
	longest := 0
	for i := range svc.Servers {
		longest = max(longest, headerTo(svc, &svc.Servers[i]))
	}
	if len(svc.Servers) == 0 {
		return routeHeader(svc)
	}
	return longest
}

// headerTo is the longest header of a packet to a server.
func headerTo(svc *topo.Service, s *topo.Server) int {
	switch d := s.Delivery.Row(); {
	case d.Tunnel && s.Address.Is4():
		return topo.VXLANBytes + 20
	case d.Tunnel:
		return topo.VXLANBytes + 40
	case d.Neighbour:
		return 0
	}
	return routeHeader(svc)
}

// routeHeader is the longest header of segments.
func routeHeader(svc *topo.Service) int {
	n := len(svc.Via) + 1
	if svc.Signals() {
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

// sameRecord reports whether packets read the same of two services beside the table. A
// field counts unless it is named here, so a new key needs no change.
func sameRecord(a, b *Service) bool {
	record := func(s *Service) topo.Service {
		r := s.Service
		r.Name = ""                              // for people
		r.Select, r.Choices, r.Buckets = 0, 0, 0 // the table's
		r.Servers, r.Version, r.History = nil, 0, nil
		r.LearnEvery = 0                         // the daemon's
		r.Via = append([]netip.Addr{}, r.Via...) // none is none
		r.Allow = append([]netip.Prefix{}, r.Allow...)
		return r
	}
	return reflect.DeepEqual(record(a), record(b)) && a.Buckets() == b.Buckets() &&
		LongestHeader(&a.Service) == LongestHeader(&b.Service)
}

// changed counts the lists of today that differ.
func changed(a, b *Service) (n int) {
	if a.Buckets() != b.Buckets() {
		return b.Buckets()
	}
	id := map[[8]byte]int{}
	for i, s := range b.Servers {
		id[s.ID()] = i
	}
	was := make([]int, len(a.Servers))
	for i, s := range a.Servers {
		was[i] = -1
		if now, ok := id[s.ID()]; ok {
			was[i] = now
		}
	}
	same := func(x, y uint16) bool { return was[x] == int(y) }
	for i := range b.Buckets() {
		if !slices.EqualFunc(a.Tables[0].Bucket(i), b.Tables[0].Bucket(i), same) {
			n++
		}
	}
	return n
}
