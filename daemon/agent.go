package daemon

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"proffer/api"
	"proffer/control"
	"proffer/dataplane"
	"proffer/topo"
)

// AgentPlane is an agent's data plane.
type AgentPlane interface {
	Plane
	control.Reporter
	Load(service int) (dataplane.Load, error)
	SetKeys([]topo.SignalKey) error
}

// agent is the role of a server's agent.
type agent struct {
	path  string
	cfg   *topo.Agent
	plane AgentPlane
	pages map[int]control.Page // by the number of the service
	clock Clock
}

// Agent runs the agent that the file at path describes, until ctx ends.
func Agent(ctx context.Context, path string, host *Host) error {
	hangups, stop := onHangup()
	defer stop()
	cfg, err := readAgent(path)
	if err != nil {
		return err
	}
	if err := host.Preflight(); err != nil {
		return err
	}
	pages := map[int]control.Page{}
	closePages, err := openPages(cfg, host, pages)
	defer closePages()
	if err != nil {
		return err
	}
	plane, err := host.Agent(cfg)
	if err != nil {
		return err
	}
	r := &agent{path: path, cfg: cfg, plane: plane, pages: pages, clock: host.Clock}
	d := daemon{role: r, name: "agent", node: cfg.Node, plane: plane, host: host, hangups: hangups}
	if len(pages) > 0 {
		d.reports = func(ctx context.Context) error { return control.Reports(ctx, host.Clock, pages, plane) }
	}
	return d.run(ctx)
}

// openPages opens the load page of every service that reads one. The caller closes the
// returned pages even after an error.
func openPages(cfg *topo.Agent, host *Host, pages map[int]control.Page) (closeAll func(), err error) {
	var open []Page
	closeAll = func() {
		for _, page := range open {
			page.Close() // only read: nothing can be lost
		}
	}
	for i, s := range cfg.Services {
		if !s.Measure.Page() {
			continue
		}
		page, err := host.Page(s.Page)
		if err != nil {
			return closeAll, err
		}
		open, pages[i] = append(open, page), page
	}
	return closeAll, nil
}

func (r *agent) ready() []any { return []any{"services", len(r.cfg.Services)} }

func (r *agent) describe(s *api.Status) error {
	var errs []error
	for i, o := range r.cfg.Services {
		l, err := r.plane.Load(i)
		errs = append(errs, err)
		load := &api.LoadStatus{Threshold: l.Threshold, Asking: l.Asking, Expected: l.Expected, Open: l.Open}
		if page, ok := r.pages[i]; ok {
			load.PageBusy, load.PageAge = r.pageStatus(page)
		}
		mode := fmt.Sprintf("%s, load %s", o.Acceptance.Spell(o.Threshold), o.Measure)
		s.Services = append(s.Services, api.ServiceStatus{Name: o.Name, VIP: o.VIP.String(), Mode: mode, Load: load})
	}
	return errors.Join(errs...)
}

// pageStatus returns a page's busy count, and for how many seconds it has not been
// written, or how far its writer's clock is from ours; -1: never written.
func (r *agent) pageStatus(page control.Page) (*uint32, *float64) {
	busy, written := page.Read()
	age := -1.0
	if written > 0 {
		age = (r.clock.Now() - written).Abs().Seconds()
	}
	return &busy, &age
}

// reload reads the signal keys again; the services stay.
func (r *agent) reload() ([]netip.Addr, error) {
	next, err := readAgent(r.path)
	if err != nil {
		return nil, err
	}
	if err := sameNode(&r.cfg.Node, &next.Node, r.cfg.Flows, next.Flows); err != nil {
		return nil, err
	}
	if !slices.Equal(next.Services, r.cfg.Services) {
		return nil, fixed("services")
	}
	return nil, r.plane.SetKeys(next.Keys)
}
