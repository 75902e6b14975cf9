// Package daemon runs a data plane from its configuration file to its detaching: it
// loads and attaches the plane, keeps it up to date, answers questions and reloads. The
// kernel, the clock and the plane are interfaces, so that the daemon is tested without
// root.
package daemon

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"proffer/api"
	"proffer/control"
	"proffer/dataplane"
	"proffer/topo"
)

// Plane is a loaded data plane.
type Plane interface {
	control.Plane
	Attach() error
	Detach() error
	Close() error      // leaves pinned programs attached
	Mode() string      // of XDP: native or generic
	Adopted() bool     // took over an earlier daemon's state
	Unpinned() string  // why flows end with this process; empty: they do not
	Forgotten() string // flows of an earlier daemon that are lost; empty: none
	Advice() []string  // facts about the links that cost speed or packets
	Counters() ([]dataplane.Counter, error)
}

// role is the part of a daemon that an LB, an agent, an edge LB and an nf have each their own way.
type role struct {
	name, node, control string
	locator             netip.Prefix // the zero Prefix: the node has none
	unsigned            bool         // its signals bear no tags
	from                origin
	near                func() []topo.Neighbour // nodes whose locators need no route; nil: none
	keeps
	plane    Plane
	ways     func() control.Ways
	attach   func() error            // the plane, when its next hops are known
	ready    func() []any            // more for the log when ready
	warn     func()                  // of the configuration now, at the start and after a reload
	advice   func() []string         // about the settings of the host now
	describe func(*api.Status) error // more for the status
	reload   func(context.Context) error
	drain    func() error                  // takes only those new flows that no other node can take; nil: it cannot tell
	tasks    []func(context.Context) error // until the context ends
}

// daemon runs a loaded plane.
type daemon struct {
	role
	host     *Host
	hangups  <-chan os.Signal
	upkeep   *control.Controller
	attached bool
	leaking  told // of the log, about keys
	reloads
}

// warnLeaks logs that a key lies open, and that it lies so no longer.
func (d *daemon) warnLeaks() {
	d.leaking.tell(d.host.Log, "a key lies open", "advice", d.leaks())
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
	d.warn()
	socket, err := d.host.listen(d.control)
	if err != nil {
		return err
	}
	if socket != nil {
		defer socket.Close()
	}
	watch := func(link string) (control.NextHops, error) {
		hops, err := d.host.NextHops(link, d.locator)
		if err == nil && d.near != nil {
			hops = &nearHops{NextHops: hops, near: d.near}
		}
		return hops, err
	}
	d.upkeep = control.New(d.plane, watch, d.ways(), d.host.Clock, d.host.Log)
	defer d.upkeep.Close()
	if err := d.upkeep.Start(ctx); err != nil || ctx.Err() != nil {
		return err
	}
	if err := d.attach(); err != nil {
		return err
	}
	d.attached = true
	d.from.applied()
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
		log.Info("detached", "role", d.name, "flows", d.upkeep.Flows())
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
	if d.unsigned {
		log.Warn("signals are not authenticated: `proffer help keys` explains how to change that")
	}
	for _, a := range d.plane.Advice() {
		log.Warn("the link costs speed or packets", "advice", a)
	}
	d.warnLeaks()
	for _, a := range d.advice() {
		log.Warn("a setting of this host loses packets", "advice", a)
	}
	log.Info("ready", append([]any{"role", d.name, "node", d.node, "interface", d.links(),
		"xdp", d.plane.Mode(), "adopted", d.plane.Adopted(), "control", d.control}, d.ready()...)...)
}

// links are the names of the plane's links now.
func (d *daemon) links() string {
	var names []string
	for _, name := range slices.Sorted(maps.Keys(d.ways())) {
		if dev := d.plane.Link(name); dev != nil {
			name = dev.Name
		}
		names = append(names, name)
	}
	return strings.Join(names, ",")
}

// serve runs the daemon's goroutines while packets flow, until ctx ends or one of them
// fails.
func (d *daemon) serve(ctx context.Context, socket net.Listener) error {
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return d.host.answer(ctx, socket, d.control, d.status) })
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
	}
}

func (d *daemon) reloadOnce(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, reloadsWithin)
	defer cancel()
	err := d.reload(ctx)
	// Before the outcome is known to Reload, whose end is that of the service manager's command: a failed
	// command counts only for a unit that is ready again.
	d.notify(isReady)
	if err != nil {
		d.refuse(err, d.host.Log)
		return
	}
	d.from.applied()
	d.upkeep.SetWays(d.ways())
	d.warn()
	d.applied(d.host.Log)
	d.warnLeaks()
}

// status describes the daemon now.
func (d *daemon) status() (api.Status, error) {
	s := api.Status{
		Role:      d.name,
		Node:      d.node,
		Interface: d.links(),
		XDP:       d.plane.Mode(),
		PID:       os.Getpid(),
		Adopted:   d.plane.Adopted(),
		Flows:     d.upkeep.Flows(),
		NoNextHop: d.upkeep.Lacking(),
		Problems:  d.upkeep.Problems(),
		Counters:  map[string]uint64{},
	}
	if d.locator.IsValid() {
		s.Locator = d.locator.String()
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

// each calls f at the end of each period until ctx ends. An error does not stop the packets, so it is logged, once
// while it stays.
func (h *Host) each(ctx context.Context, period time.Duration, f func() error) error {
	ticks, stop := h.Clock.Tick(period)
	defer stop()
	logged := ""
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticks:
		}
		text := ""
		if err := f(); err != nil {
			if text = err.Error(); text != logged {
				h.Log.Error("upkeep of the data plane", "error", err)
			}
		}
		logged = text
	}
}
