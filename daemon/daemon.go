// Package daemon runs a data plane from its configuration file to its detaching: it
// loads and attaches the plane, keeps it up to date, answers questions and reloads. The
// kernel, the clock and the plane are interfaces, so that the daemon is tested without
// root.
package daemon

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"proffer/api"
	"proffer/control"
	"proffer/dataplane"
	"proffer/topo"
)

// Plane is a loaded data plane.
type Plane interface {
	control.Plane
	Attachment
	Describer
	Counters() ([]dataplane.Counter, error)
}

// Attachment attaches a plane to its link and detaches it.
type Attachment interface {
	Attach() error
	Close() error
}

// Describer describes how a plane is attached.
type Describer interface {
	Mode() string     // of XDP: native or generic
	Adopted() bool    // took over an earlier daemon's state
	Unpinned() string // why flows end with this process; empty: they do not
}

// role holds the differences between an LB and an agent.
type role interface {
	ready() []any // more for the log when ready
	describe(*api.Status) error
	reload() (targets []netip.Addr, err error)
}

// daemon runs one loaded plane.
type daemon struct {
	role
	name    string
	node    topo.Node
	plane   Plane
	host    *Host
	targets []netip.Addr                // their next hops must always be known
	reports func(context.Context) error // copies load pages until the context ends; or nil
	hangups <-chan os.Signal
	upkeep  *control.Controller

	reloaded, refused atomic.Uint64
}

// run attaches the plane, serves until ctx ends or the socket fails, and detaches
// the plane in any case. No goroutine outlives it.
func (d *daemon) run(ctx context.Context) (err error) {
	var listening sync.WaitGroup
	defer listening.Wait()
	defer func() {
		if closeErr := d.plane.Close(); err == nil && closeErr != nil {
			err = fmt.Errorf("detach: %w", closeErr)
		}
		d.host.Log.Info("detached", "role", d.name)
	}()
	socket, err := api.Listen(d.node.Control)
	if err != nil {
		return err
	}
	defer socket.Close()
	hops, err := d.host.NextHops(d.node.Interface)
	if err != nil {
		return err
	}
	defer hops.Close()
	d.upkeep = control.New(d.plane, hops, d.targets, d.host.Clock, d.host.Log)
	if err := d.attach(ctx); err != nil || ctx.Err() != nil {
		return err
	}
	d.announce()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	listening.Go(func() { d.upkeep.Listen(ctx) })
	return d.serve(ctx, socket)
}

// attach copies the next hops before the first packet comes. If ctx has ended
// meanwhile, the plane is not attached.
func (d *daemon) attach(ctx context.Context) error {
	if err := d.upkeep.Start(ctx); err != nil || ctx.Err() != nil {
		return err
	}
	return d.plane.Attach()
}

// announce logs that the daemon is ready, with warnings for its operator.
func (d *daemon) announce() {
	log := d.host.Log
	if why := d.plane.Unpinned(); why != "" {
		log.Warn("flows will not outlive this process", "reason", why)
	}
	if len(d.node.Keys) == 0 {
		log.Warn("signals are not authenticated: `proffer help keys` explains how to change that")
	}
	log.Info("ready", append([]any{"role", d.name, "node", d.node.Name, "interface", d.node.Interface,
		"xdp", d.plane.Mode(), "adopted", d.plane.Adopted(), "control", d.node.Control}, d.ready()...)...)
}

// serve runs the daemon's goroutines while packets flow, until ctx ends or one of them
// fails.
func (d *daemon) serve(ctx context.Context, socket net.Listener) error {
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return api.Serve(ctx, socket, d.status) })
	group.Go(func() error {
		d.upkeep.Run(ctx)
		return nil
	})
	group.Go(func() error {
		d.reloads(ctx)
		return nil
	})
	if d.reports != nil {
		group.Go(func() error { return d.reports(ctx) })
	}
	return group.Wait()
}

// reloads applies the configuration again at every SIGHUP; a configuration with a
// mistake changes nothing.
func (d *daemon) reloads(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-d.hangups:
		}
		targets, err := d.reload()
		if err != nil {
			d.refused.Add(1)
			d.host.Log.Error("configuration not reloaded, the old one stays", "error", err)
			continue
		}
		if targets != nil {
			d.upkeep.SetTargets(targets)
		}
		d.reloaded.Add(1)
		d.host.Log.Info("configuration reloaded")
	}
}

// status describes the daemon now.
func (d *daemon) status() (api.Status, error) {
	s := api.Status{
		Role:      d.name,
		Node:      d.node.Name,
		Locator:   d.node.Locator.String(),
		Interface: d.node.Interface,
		XDP:       d.plane.Mode(),
		PID:       os.Getpid(),
		Adopted:   d.plane.Adopted(),
		Reloads:   d.reloaded.Load(),
		Refused:   d.refused.Load(),
		Flows:     d.upkeep.Flows(),
		Counters:  map[string]uint64{},
	}
	counters, err := d.plane.Counters()
	if err != nil {
		return s, err
	}
	for _, c := range counters {
		s.Counters[c.Name] = c.Value
	}
	return s, d.describe(&s)
}
