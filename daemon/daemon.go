// Package daemon runs a data plane from its configuration file to its detaching: it
// loads and attaches the plane, keeps it up to date, answers questions and reloads. The
// kernel, the clock and the plane are interfaces, so that the daemon is tested without
// root.
package daemon

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"sync"

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
	Advice() []string // facts about the link that cost speed or packets
	Counters() ([]dataplane.Counter, error)
}

// Attachment attaches a plane to its link and detaches it. Close leaves pinned programs
// attached.
type Attachment interface {
	Attach() error
	Detach() error
	Close() error
}

// Describer describes how a plane is attached.
type Describer interface {
	Mode() string      // of XDP: native or generic
	Adopted() bool     // took over an earlier daemon's state
	Interface() string // the link's name now
	Lasting
}

// Lasting describes the flows that outlive daemons.
type Lasting interface {
	Unpinned() string  // why flows end with this process; empty: they do not
	Forgotten() string // flows of an earlier daemon that are lost; empty: none
}

// role holds the differences between an LB and an agent.
type role interface {
	drainer
	ready() []any // more for the log when ready
	describe(*api.Status) error
	reload(context.Context) (targets []netip.Addr, err error)
}

// drainer has a plane take only those new flows that no other node can take.
type drainer interface{ drain() error }

// daemon runs one loaded plane.
type daemon struct {
	role
	name    string
	node    topo.Node
	plane   Plane
	host    *Host
	targets []netip.Addr                  // their next hops must always be known
	attach  func() error                  // the plane, when its next hops are known
	tasks   []func(context.Context) error // of the role, until the context ends
	hangups <-chan os.Signal
	keeps
	upkeep  *control.Controller
	vips    func() []netip.Addr // to be addresses of this host; nil: none
	answers bool                // this host's packets leave through the plane

	attached bool

	reloads
}

// run attaches the plane and serves until ctx ends or the socket fails. No goroutine
// outlives it.
func (d *daemon) run(ctx context.Context) (err error) {
	var listening sync.WaitGroup
	defer listening.Wait()
	defer func() {
		d.notify(isEnding)
		err = d.leave(err)
	}()
	socket, err := d.host.listen(d.node.Control)
	if err != nil {
		return err
	}
	if socket != nil {
		defer socket.Close()
	}
	hops, err := d.host.NextHops(d.node.Interface, d.node.Locator)
	if err != nil {
		return err
	}
	defer hops.Close()
	d.upkeep = control.New(d.plane, hops, d.targets, d.host.Clock, d.host.Log)
	if err := d.upkeep.Start(ctx); err != nil || ctx.Err() != nil {
		return err
	}
	if err := d.attach(); err != nil {
		return err
	}
	d.attached = true
	d.announce()
	d.notify(isReady)
	ctx, cancel := d.drained(ctx)
	defer cancel()
	listening.Go(func() { d.upkeep.Listen(ctx) })
	return d.serve(ctx, socket)
}

// leave is the end after err, or nil. Programs that never were attached, or that shall go on,
// stay as they are.
func (d *daemon) leave(err error) error {
	log, goOn := d.host.Log, d.plane.Unpinned() == "" && !d.host.Detach && !errors.Is(err, dataplane.ErrLinkGone)
	var left error
	if d.attached && !goOn {
		left = d.plane.Detach()
	}
	if left = errors.Join(left, d.plane.Close()); err == nil && left != nil {
		err = fmt.Errorf("detach: %w", left)
	}
	switch {
	case !d.attached:
		log.Info("ended before it was attached", "role", d.name)
	case goOn:
		log.Info("ended; the programs go on, and the next daemon takes them over: `proffer detach` removes them", "role", d.name)
	default:
		log.Info("detached", "role", d.name)
	}
	return err
}

// announce logs that the daemon is ready, with warnings for its operator.
func (d *daemon) announce() {
	log := d.host.Log
	if why := d.plane.Unpinned(); why != "" {
		log.Warn("flows will not outlive this process", "reason", why)
	}
	if lost := d.plane.Forgotten(); lost != "" {
		log.Warn("the earlier daemon's flows are forgotten; open connections are recovered where servers know them", "lost", lost)
	}
	if len(d.node.Keys) == 0 {
		log.Warn("signals are not authenticated: `proffer help keys` explains how to change that")
	}
	for _, a := range d.plane.Advice() {
		log.Warn("the link costs speed or packets", "advice", a)
	}
	d.warn(log)
	for _, a := range d.advice() {
		log.Warn("a setting of this host loses packets", "advice", a)
	}
	log.Info("ready", append([]any{"role", d.name, "node", d.node.Name, "interface", d.node.Interface,
		"xdp", d.plane.Mode(), "adopted", d.plane.Adopted(), "control", d.node.Control}, d.ready()...)...)
}

// advice is about the settings of the host now.
func (d *daemon) advice() []string {
	var vips []netip.Addr
	if d.vips != nil {
		vips = d.vips()
	}
	list, err := d.host.Advice(d.plane.Interface(), vips, d.answers)
	if err != nil {
		list = append(list, fmt.Sprintf("the settings of %s cannot be checked: %v", d.plane.Interface(), err))
	}
	return list
}

// serve runs the daemon's goroutines while packets flow, until ctx ends or one of them
// fails.
func (d *daemon) serve(ctx context.Context, socket net.Listener) error {
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return d.host.answer(ctx, socket, d.node.Control, d.status) })
	group.Go(func() error { return d.upkeep.Run(ctx) })
	group.Go(func() error {
		d.hear(ctx)
		return nil
	})
	for _, task := range d.tasks {
		group.Go(func() error { return task(ctx) })
	}
	return group.Wait()
}

// hear applies the configuration again at every SIGHUP; a configuration with a
// mistake changes nothing.
func (d *daemon) hear(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-d.hangups:
		}
		d.notify(isReloading(d.host.Clock.Now()))
		d.reloadOnce(ctx)
		d.notify(isReady)
	}
}

func (d *daemon) reloadOnce(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, reloadsWithin)
	defer cancel()
	targets, err := d.reload(ctx)
	if err != nil {
		d.refuse(err, d.host.Log)
		return
	}
	if targets != nil {
		d.upkeep.SetTargets(targets)
	}
	d.applied(d.host.Log)
	d.warn(d.host.Log)
}

// status describes the daemon now.
func (d *daemon) status() (api.Status, error) {
	s := api.Status{
		Role:      d.name,
		Node:      d.node.Name,
		Locator:   d.node.Locator.String(),
		Interface: d.plane.Interface(),
		XDP:       d.plane.Mode(),
		PID:       os.Getpid(),
		Adopted:   d.plane.Adopted(),
		Flows:     d.upkeep.Flows(),
		NoNextHop: d.upkeep.Lacking(),
		Problems:  d.upkeep.Problems(),
		Counters:  map[string]uint64{},
	}
	s.Advice = slices.Concat(d.plane.Advice(), d.leaks(), d.advice())
	d.report(&s)
	d.host.describe(&s)
	counters, err := d.plane.Counters()
	if err != nil {
		return s, err
	}
	for _, c := range counters {
		s.Counters[c.Name] = c.Value
	}
	return s, d.describe(&s)
}
