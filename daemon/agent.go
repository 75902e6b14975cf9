package daemon

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"os"
	"slices"
	"sync"
	"sync/atomic"

	"proffer/api"
	"proffer/control"
	"proffer/dataplane"
	"proffer/plan"
	"proffer/topo"
)

// AgentPlane is an agent's data plane.
type AgentPlane interface {
	Plane
	control.Reporter
	Load(service int) (dataplane.Load, error)
	Page(service int) (*os.File, error) // that programs map
	NoWork() string                     // why the load measure work cannot be counted; empty: it can, or need not
	SetKeys([]topo.SignalKey) error
	Offer([]topo.Offering) ([]plan.Step, error)
}

// handing is a source that hands a page of the plane over, and owns it from then on.
type handing interface{ Give(page *os.File) error }

// agent is the role of a server's agent.
type agent struct {
	from    origin
	now     atomic.Pointer[topo.Agent]
	mu      sync.Mutex // held while services change in the plane and in now, and while both are read
	drains  bool       // no reload may take new flows again
	plane   AgentPlane
	host    *Host
	reports *control.Reports
	closer  func() // of their sources

	listening listening
	speeds    speeds
	reporting reporting
	unsure    map[topo.VIP]string // why the work of a service is not counted again
	reloaded  chan struct{}       // the services may be others
}

// runAgent runs an agent until ctx ends.
func runAgent(ctx context.Context, from origin, host *Host) error {
	hangups, stop, err := from.changes()
	if err != nil {
		return err
	}
	defer stop()
	cfg, err := from.Agent(ctx)
	if err != nil {
		return err
	}
	if err := host.Preflight(); err != nil {
		return err
	}
	r := &agent{from: from, host: host, reloaded: make(chan struct{}, 1)}
	r.now.Store(cfg)
	sources, closeSources, err := openSources(cfg, host)
	r.closer = closeSources
	defer func() { r.closer() }()
	if err != nil {
		return err
	}
	r.reports = control.NewReports(sources, host.Clock, host.Log)
	if r.plane, err = host.Agent(cfg); err != nil {
		return err
	}
	if err := r.handPages(sources); err != nil {
		return errors.Join(err, r.plane.Close())
	}
	d := daemon{host: host, hangups: hangups, role: role{
		name: "agent", node: cfg.Name, control: cfg.Control, locator: cfg.Locator, unsigned: len(cfg.Keys) == 0, from: from,
		plane: r.plane, ways: r.ways, near: func() []topo.Neighbour { return r.now.Load().Near }, attach: r.attach, ready: r.ready, warn: func() {},
		advice:   func() []string { return r.host.settings(r.plane.Link(cfg.Interface).Name, r.localVIPs(), true) },
		describe: r.describe, reload: r.reload, drain: r.drain,
		tasks: []func(context.Context) error{func(ctx context.Context) error { return r.reports.Run(ctx, r.plane) }, r.listeners, r.learn, r.report},
	}}
	return d.run(ctx)
}

// attach attaches the plane, and warns if it counts another load than it should.
func (r *agent) attach() error {
	if why := r.plane.NoWork(); why != "" {
		r.host.Log.Warn("the load measure work cannot be counted here; busy is used instead", "reason", why)
	}
	return r.plane.Attach()
}

// localVIPs are the VIPs with sockets in the agent's own network namespace.
func (r *agent) localVIPs() (vips []netip.Addr) {
	for _, s := range r.now.Load().Services {
		if s.Owner == topo.Socket && !slices.Contains(vips, s.VIP.Addr) {
			vips = append(vips, s.VIP.Addr)
		}
	}
	return vips
}

// openSources opens the source of every service with an application's own word as its load. The
// caller closes the returned sources even after an error.
func openSources(cfg *topo.Agent, host *Host) (sources map[int]control.Named, closeAll func(), err error) {
	var open []Source
	sources = map[int]control.Named{}
	closeAll = func() {
		for _, source := range open {
			source.Close() // only read: nothing can be lost
		}
	}
	for i := range cfg.Services {
		s := &cfg.Services[i]
		if !s.Measure.Page() {
			continue
		}
		source, err := host.Source(s)
		if err != nil {
			return sources, closeAll, err
		}
		open, sources[i] = append(open, source), control.Named{Source: source, Service: s.Name, Load: s.Load().String()}
	}
	return sources, closeAll, nil
}

// handPages gives each source that hands a page over its service's.
func (r *agent) handPages(sources map[int]control.Named) error {
	for i, source := range sources {
		if to, hands := source.Source.(handing); hands {
			page, err := r.plane.Page(i)
			if err != nil {
				return err
			}
			if err := to.Give(page); err != nil {
				return err
			}
		}
	}
	return nil
}

func (r *agent) ready() []any { return []any{"services", len(r.now.Load().Services)} }

func (r *agent) describe(s *api.Status) error {
	s.Problems = append(s.Problems, r.absent()...)
	r.mu.Lock()
	defer r.mu.Unlock()
	var errs []error
	for i, o := range r.now.Load().Services {
		l, err := r.plane.Load(i)
		errs = append(errs, err)
		load := &api.LoadStatus{Measure: l.Measure.String(), Instead: l.Instead, Threshold: l.Threshold, Asking: l.Asking, Expected: l.Expected, Open: l.Open}
		load.Cores, load.Answers, load.ServiceTime = r.cores(&o), l.Answered, r.speeds.of(o.VIP)
		if l.Known {
			idle := max(0, load.Cores-float64(l.Busy))
			load.Busy, load.Idle = &l.Busy, &idle
		}
		if w := l.Work; w != nil {
			load.Work = &api.WorkStatus{Unread: w.Unread + w.Early, Early: w.Early, Run: w.Run, Blocked: w.Blocked, Out: w.Out}
		}
		if word, ok := r.reports.Of(i); ok {
			load.Word = r.word(&o, word)
		}
		mode := fmt.Sprintf("%s, load %s", o.Acceptance.Spell(o.Threshold), o.Load())
		if l.Instead != "" {
			mode = fmt.Sprintf("%s, load %s instead of %s: %s", o.Acceptance.Spell(o.Threshold), l.Measure, o.Load(), l.Instead)
		}
		line, warning := r.listening.of(o.VIP)
		if warning != "" {
			s.Advice = append(s.Advice, fmt.Sprintf("service %s: %s", o.Name, warning))
		}
		if l.NoRecount != "" {
			s.Advice = append(s.Advice, fmt.Sprintf("service %s: its work is not counted again: %s", o.Name, l.NoRecount))
		}
		s.Services = append(s.Services, api.ServiceStatus{Name: o.Name, VIP: o.VIP.String(), Mode: mode, Listener: line, Load: load})
	}
	s.Reports = r.reporting.status()
	var err error
	s.BadTags, err = named(r.plane, nil)
	return errors.Join(append(errs, err)...)
}

// word is an application's, with its age, or how far its clock is from ours; -1: there was none.
func (r *agent) word(o *topo.Offering, w control.Word) *api.WordStatus {
	s := &api.WordStatus{Source: o.Load().String(), From: cmp.Or(withoutSecret(o.From), o.Page), Of: o.Of, Busy: w.Busy, Workers: w.Workers, Age: -1, Trouble: w.Trouble}
	if w.Written > 0 {
		s.Age = (r.host.Clock.Now() - w.Written).Abs().Seconds()
	}
	return s
}

// withoutSecret is the address of an endpoint without its password.
func withoutSecret(from string) string {
	if u, err := url.Parse(from); err == nil && u.User != nil {
		return u.Redacted()
	}
	return from
}

// drain passes every offer on that another server can take.
func (r *agent) drain() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.drains = true
	services := slices.Clone(r.now.Load().Services)
	for i := range services {
		services[i].Acceptance, services[i].Threshold = topo.Static, 0
	}
	_, err := r.plane.Offer(services)
	return err
}

// reload reads the file again and goes over to its services, sources and signal keys.
func (r *agent) reload(ctx context.Context) error {
	next, err := r.from.Agent(ctx)
	if err != nil {
		return err
	}
	now := r.now.Load()
	if err := sameNode(&now.Node, &next.Node, now.Flows, next.Flows); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.drains {
		return errors.New("the agent drains, and takes no new flows until it ends")
	}
	sources, closeSources, err := openSources(next, r.host)
	if err == nil {
		err = r.reports.Change(sources, func() error {
			if err := r.offer(next.Services); err != nil {
				return err
			}
			return r.handPages(sources)
		})
	}
	if err != nil {
		closeSources()
		return err
	}
	r.closer()
	r.closer = closeSources
	r.now.Store(next)
	select {
	case r.reloaded <- struct{}{}:
	default:
	}
	return r.plane.SetKeys(next.Keys)
}

// offer gives the plane its services and logs the way.
func (r *agent) offer(services []topo.Offering) error {
	steps, err := r.plane.Offer(services)
	if err != nil {
		return err
	}
	count := map[plan.Verb]int{}
	for _, step := range steps {
		count[step.Verb]++
		r.host.Log.Debug("reload", "step", step.String())
	}
	r.host.Log.Info("reload", "added", count[plan.AddOffering], "kept", count[plan.KeepOffering], "removed", count[plan.RemoveOffering])
	return nil
}
