package daemon

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"

	"proffer/api"
	"proffer/control"
	"proffer/dataplane"
	"proffer/history"
	"proffer/plan"
	"proffer/topo"
)

// LBPlane is a load balancer's data plane.
type LBPlane interface {
	Plane

	// From one configuration to another.
	Plan(*topo.LB) (*plan.Plan, error)
	Apply(*plan.Plan) error
	Resolved() (without []topo.Server, all int)     // servers, and those without a next hop
	Needed([]topo.VIP) (map[topo.VIP][]bool, error) // which earlier pools have flows in the table
	FlowTableBytes() uint64

	// The flows of servers, and the spread of new flows over them.
	Connections([]topo.Service) ([][]uint32, error)
	Seats(*topo.Service) ([]dataplane.Seat, error)
	Spread(*topo.Service, dataplane.Spread) error
	Recount() (wrong int, err error) // sets the counts of flows right, and returns how many were wrong

	// The requests in hand that agents report.
	Begun(*topo.Service) ([]uint32, error)
	Queues(*topo.Service, []dataplane.Queue) error

	// How servers answer.
	Health([]topo.Server) ([]dataplane.Health, error)
	SetDown(down, doubted []topo.Server) error
	Probe(vip topo.VIP, server netip.Addr)
	Check([]dataplane.Check) error
}

// lb is the role of a load balancer.
type lb struct {
	from    origin
	started *topo.LB
	now     atomic.Pointer[topo.LB]
	plane   LBPlane
	host    *Host

	mu     sync.Mutex      // a change at a time
	record *history.Record // of the pools that were served
	store  *history.Store
	unkept error    // why the record cannot be written
	full   *topo.LB // that the plane has: with the recorded pools

	learners map[topo.VIP]*control.Learner
	learnFor *topo.LB // the configuration that they are of
	reloaded chan struct{}

	health healths

	wrongCounts uint64 // that recounts have set right
	lost        string // the damaged record of earlier pools; empty: there was none

	forgetful, closed told // of warn
}

// runLB runs a load balancer until ctx ends.
func runLB(ctx context.Context, from origin, host *Host) error {
	hangups, stop, err := from.changes()
	if err != nil {
		return err
	}
	defer stop()
	cfg, wrong, err := from.LB(ctx)
	if err != nil {
		return err
	}
	if err := host.Preflight(); err != nil {
		return err
	}
	r := &lb{from: from, started: cfg, host: host, health: newHealths(), reloaded: make(chan struct{}, 1)}
	r.now.Store(cfg)
	if err := r.openRecord(cfg); err != nil {
		return err
	}
	defer r.store.Close()
	if err := r.noneGoesBack(cfg, wrong); err != nil {
		return err
	}
	earlier := r.record
	r.record, r.full = r.follow(cfg, keepAll)
	if r.plane, err = host.LB(r.full); err != nil {
		return err
	}
	d := daemon{host: host, hangups: hangups, role: role{
		name: "lb", node: cfg.Name, control: cfg.Control, locator: cfg.Locator, unsigned: len(cfg.Keys) == 0, keeps: from.keeps("candidate_key"), from: from, near: r.near,
		plane: r.plane, ways: r.ways, attach: r.attach(earlier), ready: r.ready, warn: r.warn, advice: r.advice,
		describe: r.describe, reload: r.reload,
		tasks: []func(context.Context) error{r.forgetting, r.keeping, r.learning, r.observing, r.polling, r.leaving},
	}}
	return d.run(ctx)
}

// attach attaches the plane, with the record of the pools that it serves; earlier was that before.
func (r *lb) attach(earlier *history.Record) func() error {
	return func() error {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.keep(r.record)
		err := r.plane.Attach()
		if err != nil { // none of the pools was served
			err = errors.Join(err, r.keep(earlier))
		}
		return err
	}
}

// ways are the link and the addresses with next hops that an LB must always know.
func (r *lb) ways() control.Ways {
	cfg := r.now.Load()
	return control.Ways{cfg.Interface: targetsOf(cfg)}
}

func (r *lb) advice() []string {
	return r.host.settings(r.plane.Link(r.started.Interface).Name, nil, false)
}

func (r *lb) ready() []any {
	without, all := r.plane.Resolved()
	return []any{"servers", all, "next_hops_known", all - len(without), "flow_table_mib", r.plane.FlowTableBytes() >> 20}
}

func (r *lb) describe(s *api.Status) error {
	cfg := r.now.Load()
	connections, err := r.plane.Connections(cfg.Services) // takes long: nothing waits for it
	r.mu.Lock()
	defer r.mu.Unlock()
	if now := r.now.Load(); now != cfg {
		cfg = now
		connections, err = r.plane.Connections(cfg.Services)
	}
	if err != nil {
		return err
	}
	for i, svc := range cfg.Services {
		status := api.ServiceOf(&svc)
		status.Learning, status.Servers = r.learned(&svc), r.serversOf(&svc, connections[i])
		s.Services = append(s.Services, status)
	}
	s.Servers = r.answers(cfg)
	if r.lost != "" {
		s.Problems = append(s.Problems, r.lost)
	}
	s.Advice = append(s.Advice, forgetful(cfg, connections)...)
	without, _ := r.plane.Resolved()
	s.NoNextHop = append(s.NoNextHop, unreached(without)...)
	s.Problems = slices.Concat(s.Problems, r.unrecorded(), closedServices(cfg))
	s.BadTags, err = named(r.plane, serversOf(cfg))
	return err
}

// unreached lists the servers that have no way although their address may have a next hop.
func unreached(servers []topo.Server) (list []string) {
	for i := range servers {
		s := &servers[i]
		switch d := s.Delivery.Row(); {
		case d.Neighbour:
			list = append(list, fmt.Sprintf("%s (server %s is no neighbour on this link, which delivery: %s needs)", s.Address, s.Name, s.Delivery))
		case d.Tunnel && s.Address.Is4():
			list = append(list, fmt.Sprintf("%s (server %s has no next hop, or this link no IPv4 address for delivery: %s)", s.Address, s.Name, s.Delivery))
		}
	}
	return list
}

// reload reads the file again and applies it.
func (r *lb) reload(ctx context.Context) error {
	next, wrong, err := r.from.LB(ctx)
	if err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := sameNode(&r.started.Node, &next.Node, r.started.Flows, next.Flows); err != nil {
		return err
	}
	if err := fixed([]kept{{"candidate_key", next.CandidateKey == r.started.CandidateKey}, {"state", next.State == r.started.State}}); err != nil {
		return err
	}
	if err := r.noneGoesBack(next, wrong); err != nil {
		return err
	}
	if err := r.change(r.follow(next, keepAll)); err != nil {
		return err
	}
	r.now.Store(next)
	select {
	case r.reloaded <- struct{}{}:
	default: // one before it waits
	}
	return nil
}

// weighed returns cfg with the weights that its servers have now.
func (r *lb) weighed(cfg *topo.LB) *topo.LB {
	return control.Weighed(cfg, r.host.Clock.Now(), r.host.Weigher)
}

// targetsOf lists the addresses with next hops that an LB must always know, each once.
func targetsOf(cfg *topo.LB) []netip.Addr {
	var addrs []netip.Addr
	for _, svc := range cfg.Services {
		addrs = append(addrs, svc.Via...)
		for i := range svc.Servers {
			addrs = append(addrs, svc.Servers[i].At())
		}
	}
	slices.SortFunc(addrs, netip.Addr.Compare)
	return slices.Compact(addrs)
}
