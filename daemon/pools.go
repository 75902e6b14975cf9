package daemon

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"proffer/history"
	"proffer/topo"
)

// forgetEvery is how often the LB looks for earlier pools without flows.
const forgetEvery = time.Minute

// moment is the time now.
func (r *lb) moment() history.Moment {
	return history.Moment{Wall: r.host.Wall(), Steady: r.host.Clock.Now()}
}

// warn logs the settings of the configuration that lose connections.
func (r *lb) warn() {
	cfg := r.now.Load()
	r.forgetful.tell(r.host.Log, "a setting loses connections", "advice", forgetful(cfg, nil))
	r.closed.tell(r.host.Log, "a service takes no new flows", "problem", closedServices(cfg))
}

// closedServices names those whose servers take no new flows by the file.
func closedServices(cfg *topo.LB) (all []string) {
	for i := range cfg.Services {
		switch s := &cfg.Services[i]; {
		case len(s.Servers) == 0:
			all = append(all, fmt.Sprintf("service %s at %v has no server, so its packets are dropped: list some in its `servers`, and reload", s.Name, s.VIP))
		case !slices.ContainsFunc(s.Servers, func(s topo.Server) bool { return s.Weight > 0 }):
			all = append(all, fmt.Sprintf("service %s at %v takes no new flows, as all its servers have weight 0: give one of them a weight above 0, and reload", s.Name, s.VIP))
		}
	}
	return all
}

// forgetful names the services that lose a connection without an entry at this LB, with the number of such
// connections now, if the connections at their servers are given.
func forgetful(cfg *topo.LB, connections [][]uint32) (all []string) {
	for i := range cfg.Services {
		s := &cfg.Services[i]
		if !s.Forgets() {
			continue
		}
		cure := "give every server an agent, and set `recovery: agents`"
		if s.AllAsked() {
			cure = "set `recovery: agents`"
		}
		all = append(all, fmt.Sprintf("service %s: a connection that this LB has no entry of (another LB had it, a full table needed its room, or it was silent for more than %v) "+
			"is lost, as dispatch: %s with recovery: %s cannot find its server: %s", s.Name, cfg.Flows.IdleTCP(), s.Dispatch, s.Recovery, cure))
		if connections != nil {
			all[len(all)-1] += fmt.Sprintf("; connections that only this LB's table knows: %d", sum(connections[i]))
		}
	}
	return all
}

func sum(counts []uint32) (n uint64) {
	for _, c := range counts {
		n += uint64(c)
	}
	return n
}

// leaving names, when ctx ends, the connections that a version is going to lose which does not read this
// table: an earlier version than this program, above all.
func (r *lb) leaving(ctx context.Context) error {
	<-ctx.Done()
	cfg := r.now.Load()
	connections, err := r.plane.Connections(cfg.Services)
	if err != nil {
		r.host.Log.Warn("the connections that an earlier version would lose cannot be counted", "error", err)
		return nil
	}
	for i := range cfg.Services {
		if s := &cfg.Services[i]; s.Forgets() && sum(connections[i]) > 0 {
			r.host.Log.Info("these connections stay with the next daemon if it reads this table, and are lost with an earlier version that does not", "service", s.Name, "connections", sum(connections[i]))
		}
	}
	return nil
}

// noneGoesBack refuses versions below those that were served.
func (r *lb) noneGoesBack(cfg *topo.LB, wrong pools) error {
	var errs []error
	for i, svc := range cfg.Services {
		newest, known := r.record.Newest(svc.VIP)
		if !known || svc.Version >= newest {
			continue
		}
		problem := fmt.Sprintf("%d is below %d, which this LB has served by its record %s; want a version of %d or more for this pool, too; "+
			"or remove the record while the daemon is stopped, which forgets all earlier pools", svc.Version, newest, cfg.State, newest)
		errs = append(errs, wrong(i, problem))
	}
	return errors.Join(errs...)
}

// keepAll forgets no pool.
func keepAll(topo.VIP, topo.Version, time.Duration) bool { return false }

// follow is the record after cfg, and cfg with the record's pools.
func (r *lb) follow(cfg *topo.LB, forget func(topo.VIP, topo.Version, time.Duration) bool) (*history.Record, *topo.LB) {
	weighed := r.weighed(cfg)
	next := r.record.Next(weighed, r.moment(), forget)
	for _, svc := range cfg.Services {
		if n := r.record.Past(svc.VIP); n == history.Most && next.Past(svc.VIP) == n && !next.Equal(r.record) {
			r.host.Log.Warn("the oldest recorded pool is forgotten: its flows are not recovered", "service", svc.Name, "pools", n)
		}
	}
	return next, r.health.detour(next.Complete(weighed))
}

// change brings the plane to a configuration and its record to the disk, the record first: after
// a crash it has pools too many rather than too few.
func (r *lb) change(next *history.Record, full *topo.LB) error {
	p, err := r.plane.Plan(full)
	if err != nil {
		return err
	}
	for _, step := range p.Steps {
		r.host.Log.Debug("reload", "step", step.String())
	}
	r.host.Log.Info("reload", "plan", p.Summary())
	if err := r.keep(next); err != nil && !next.Equal(r.record) {
		return fmt.Errorf("the pools stay as they are: %w", err)
	}
	if err := r.plane.Apply(p); err != nil {
		return errors.Join(err, r.restore(), r.keep(r.record))
	}
	r.record, r.full = next, full
	return nil
}

// restore brings the plane back to the configuration that it had, after a change that failed half-way.
func (r *lb) restore() error {
	p, err := r.plane.Plan(r.full)
	if err == nil {
		err = r.plane.Apply(p)
	}
	if err != nil {
		return fmt.Errorf("go back to the configuration before: %w", err)
	}
	return nil
}

// forgetting forgets pools from time to time until ctx ends.
func (r *lb) forgetting(ctx context.Context) error {
	ticks, stop := r.host.Clock.Tick(forgetEvery)
	defer stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticks:
		}
		if err := r.forget(); err != nil {
			r.host.Log.Error("forget earlier pools", "error", err)
		}
	}
}

// forget forgets the pools that were followed by another for longer than a flow lives without
// packets. Where servers can be asked for a flow, the pool of any flow in the table stays.
func (r *lb) forget() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	cfg, table := r.now.Load(), r.started.Flows
	old := func(vip topo.VIP, _ topo.Version, age time.Duration) bool { return age > table.Silence(vip.Protocol) }
	if next, _ := r.follow(cfg, old); next.Equal(r.record) {
		return nil
	}
	var asked []topo.VIP
	for i := range cfg.Services {
		if svc := &cfg.Services[i]; svc.Signals() && r.record.Past(svc.VIP) > 0 {
			asked = append(asked, svc.VIP)
		}
	}
	needed, err := r.plane.Needed(asked)
	if err != nil {
		return err
	}
	next, full := r.follow(cfg, func(vip topo.VIP, v topo.Version, age time.Duration) bool {
		return old(vip, v, age) && !r.isNeeded(vip, v, needed[vip])
	})
	if next.Equal(r.record) {
		return nil
	}
	return r.change(next, full)
}

// isNeeded reports whether flows of an earlier pool are in the table. The flags are in the order
// of the history that the plane has.
func (r *lb) isNeeded(vip topo.VIP, v topo.Version, needed []bool) bool {
	i := slices.IndexFunc(r.full.Services, func(s topo.Service) bool { return s.VIP == vip })
	if i < 0 {
		return false
	}
	for k, past := range r.full.Services[i].History {
		if k < len(needed) && needed[k] && history.Same(past, v) {
			return true
		}
	}
	return false
}
