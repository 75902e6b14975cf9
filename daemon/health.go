package daemon

import (
	"context"
	"net/netip"
	"slices"
	"time"

	"proffer/api"
	"proffer/control"
	"proffer/history"
	"proffer/topo"
)

// healthEvery is how often the counts of servers are read.
const healthEvery = 50 * time.Millisecond

// mostDetours is how many pools without servers that were down are remembered of a service.
const mostDetours = 4

// healths is all that the LB knows of its servers' answers.
type healths struct {
	*control.Health
	of      *topo.LB // the configuration that it observes
	served  *topo.LB // that, without the servers that are down
	owing   bool     // the plane does not have that yet
	detours map[topo.VIP][]topo.Version
}

func newHealths() healths {
	return healths{Health: control.NewHealth(), detours: map[topo.VIP][]topo.Version{}}
}

// follow observes the servers of another configuration.
func (h *healths) follow(cfg *topo.LB) {
	if h.of != cfg {
		h.Configure(cfg.Services)
		h.of, h.served = cfg, h.Served(cfg)
		h.owing = h.owing || len(h.downServers()) > 0
	}
}

// detour returns a configuration without the servers that are down. Where agents signal, flows are
// recovered from the pool with those servers, and from the last pools without some, as from those of
// the history: a flow stays where it was begun. No record has these pools: all servers are back when
// the daemon starts.
func (h *healths) detour(full *topo.LB) *topo.LB {
	served := h.Served(full)
	for i := range served.Services {
		svc, whole := &served.Services[i], full.Services[i]
		if !svc.Signals() {
			continue
		}
		now := topo.Version{Version: svc.Version, Servers: svc.Servers}
		all := topo.Version{Version: svc.Version, Servers: whole.Servers}
		same := func(a topo.Version) func(topo.Version) bool {
			return func(b topo.Version) bool { return history.Same(a, b) }
		}
		past := slices.DeleteFunc(slices.Clone(h.detours[svc.VIP]), same(now))
		if !history.Same(now, all) {
			list := append([]topo.Version{now}, past...)
			h.detours[svc.VIP] = list[:min(len(list), mostDetours)]
			past = append([]topo.Version{all}, slices.DeleteFunc(past, same(all))...)
		}
		past = append(past, svc.History...)
		svc.History = past[:min(len(past), history.Most)]
	}
	return served
}

// serving is the configuration of now, without the servers that are down.
func (r *lb) serving() *topo.LB {
	r.health.follow(r.now.Load())
	return r.health.served
}

// observing observes servers until ctx ends.
func (r *lb) observing(ctx context.Context) error {
	ticks, stop := r.host.Clock.Tick(healthEvery)
	defer stop()
	failed := ""
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticks:
		}
		err := r.observe(r.host.Clock.Now())
		if err != nil && err.Error() != failed {
			r.host.Log.Error("observe how servers answer", "error", err)
		}
		failed = ""
		if err != nil {
			failed = err.Error()
		}
	}
}

// observe takes a reading, and sends new flows away from servers that are down since then.
func (r *lb) observe(at time.Duration) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	h := &r.health
	h.follow(r.now.Load())
	counts, err := r.plane.Health(h.Servers())
	if err != nil {
		return err
	}
	changes := h.Observe(at, counts)
	for _, c := range changes {
		r.noteHealth(c)
	}
	if err := r.plane.SetDown(h.downServers(), h.Doubted()); err != nil {
		return err
	}
	if len(changes) > 0 || h.owing {
		h.served, h.owing = h.Served(h.of), true
		if err := r.turnAside(); err != nil {
			return err
		}
		h.owing = false
	}
	for _, p := range h.Probes() {
		r.plane.Probe(p.VIP, p.Server)
	}
	return r.plane.Check(h.Checks(at))
}

// turnAside gives the plane the tables without servers that are down.
func (r *lb) turnAside() error {
	_, full := r.follow(r.now.Load(), keepAll)
	p, err := r.plane.Plan(full)
	if err != nil {
		return err
	}
	for _, step := range p.Steps {
		r.host.Log.Debug("health", "step", step.String())
	}
	if err := r.plane.Apply(p); err != nil {
		return err
	}
	r.full = full
	return nil
}

// noteHealth logs a change.
func (r *lb) noteHealth(c control.HealthChange) {
	more := []any{"server", c.Server, "for", c.After.Round(time.Millisecond), "offered", c.Counts.Offered, "answered", c.Counts.Answered,
		"repeated", c.Counts.Repeated, "unreachable", c.Counts.Unreachable}
	if c.Down {
		r.host.Log.Warn("a server answers nothing: new flows go elsewhere, but for probes", more...)
	} else {
		r.host.Log.Info("a server answers again, and gets new flows", more...)
	}
}

func (h *healths) downServers() (down []topo.Server) {
	for _, s := range h.Servers() {
		if h.Down(s.At()) {
			down = append(down, s)
		}
	}
	return down
}

// serversOf describes the servers of a service.
func (r *lb) serversOf(svc *topo.Service, connections []uint32) (all []api.ServerStatus) {
	for i := range svc.Servers {
		own := &svc.Servers[i]
		one := api.ServerStatus{Name: own.Name, State: r.answerOf(own).State, Weight: own.Weight, Draining: own.Weight == 0}
		if svc.Dispatch.Tracks() {
			one.Connections = &connections[i]
		}
		all = append(all, one)
	}
	return all
}

// answers describes how the servers of all services answer, each once.
func (r *lb) answers(cfg *topo.LB) (all []api.HealthStatus) {
	seen := map[netip.Addr]bool{}
	for _, svc := range cfg.Services {
		for i := range svc.Servers {
			own := &svc.Servers[i]
			if one := r.answerOf(own); one.State != "unknown" && !seen[own.At()] {
				seen[own.At()] = true
				all = append(all, one)
			}
		}
	}
	return all
}

func (r *lb) answerOf(server *topo.Server) api.HealthStatus {
	s, known := r.health.Of(server.At(), r.host.Clock.Now())
	if !known {
		return api.HealthStatus{Name: server.Name, State: "unknown"}
	}
	one := api.HealthStatus{
		Name: server.Name, State: "answers", Since: s.Since.Seconds(), Silent: s.Silent.Seconds(), Doubt: s.Doubt, Probes: s.Probed,
		Offered: s.Counts.Offered, Repeated: s.Counts.Repeated, Answered: s.Counts.Answered, Unreachable: s.Counts.Unreachable,
	}
	if s.Down {
		one.State, one.Pause = "down", s.Pause.Seconds()
	}
	return one
}
