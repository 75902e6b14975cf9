package daemon

import (
	"context"
	"net/netip"
	"slices"
	"sync/atomic"

	"proffer/api"
	"proffer/control"
	"proffer/plan"
	"proffer/topo"
)

// LBPlane is a load balancer's data plane.
type LBPlane interface {
	Plane
	Planner
	Resolved() (ready, all int) // how many of the servers have a next hop
	FlowTableBytes() uint64
}

// Planner goes from one configuration to another by a plan.
type Planner interface {
	Plan(*topo.LB) (*plan.Plan, error)
	Apply(*plan.Plan) error
}

// lb is the role of a load balancer.
type lb struct {
	path    string
	started *topo.LB
	now     atomic.Pointer[topo.LB]
	plane   LBPlane
	host    *Host
}

// LB runs the load balancer that the file at path describes, until ctx ends.
func LB(ctx context.Context, path string, host *Host) error {
	hangups, stop := onHangup()
	defer stop()
	cfg, err := readLB(path)
	if err != nil {
		return err
	}
	if err := host.Preflight(); err != nil {
		return err
	}
	r := &lb{path: path, started: cfg, host: host}
	r.now.Store(cfg)
	if r.plane, err = host.LB(r.weighed(cfg)); err != nil {
		return err
	}
	d := daemon{role: r, name: "lb", node: cfg.Node, plane: r.plane, host: host, targets: targetsOf(cfg), hangups: hangups}
	return d.run(ctx)
}

func (r *lb) ready() []any {
	ready, all := r.plane.Resolved()
	return []any{"servers", all, "next_hops_known", ready, "flow_table_mib", r.plane.FlowTableBytes() >> 20}
}

func (r *lb) describe(s *api.Status) error {
	for _, svc := range r.now.Load().Services {
		s.Services = append(s.Services, api.ServiceStatus{Name: svc.Name, VIP: svc.VIP.String(), Mode: svc.Mode()})
	}
	return nil
}

// reload reads the file again and applies it.
func (r *lb) reload() ([]netip.Addr, error) {
	next, err := readLB(r.path)
	if err != nil {
		return nil, err
	}
	if err := sameNode(&r.started.Node, &next.Node, r.started.Flows, next.Flows); err != nil {
		return nil, err
	}
	if next.CandidateKey != r.started.CandidateKey {
		return nil, fixed("candidate_key")
	}
	p, err := r.plane.Plan(r.weighed(next))
	if err != nil {
		return nil, err
	}
	for _, step := range p.Steps {
		r.host.Log.Debug("reload", "step", step.String())
	}
	r.host.Log.Info("reload", "plan", p.Summary())
	if err := r.plane.Apply(p); err != nil {
		return nil, err
	}
	r.now.Store(next)
	return targetsOf(next), nil
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
		for _, s := range svc.Servers {
			addrs = append(addrs, s.Locator.Addr())
		}
	}
	slices.SortFunc(addrs, netip.Addr.Compare)
	return slices.Compact(addrs)
}
