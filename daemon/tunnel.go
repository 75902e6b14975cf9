package daemon

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"proffer/api"
	"proffer/control"
	"proffer/dataplane"
	"proffer/topo"
)

// TunnelPlane is the data plane of an edge LB or a datapath node: an end of tunnels.
type TunnelPlane interface {
	Attach() error
	Close() error // detaches, and forgets the flows
	SetNextHop(far int, mac topo.MAC) error
	Linked
	Addressed
	Counted
}

// Linked has programs on links, which change.
type Linked interface {
	control.Follower
	control.Checker
	Interface(link string) string // the name now of a link of the configuration
	Advice() []string             // facts about the links that cost speed or packets
}

// Addressed has an address at each tunnel, at which it is asked for reports.
type Addressed interface{ Address(far int) netip.Addr }

// Counted is the upkeep and the counters of such a plane.
type Counted interface {
	Sweep() (dataplane.Swept, error)
	Counters() ([]dataplane.Counter, error)
}

// far is the far end of a tunnel.
type far struct {
	number int // at the plane
	addr   netip.Addr
	link   string
	down   bool // it answers no probe: it gets no packets
}

// tunnelRole holds the differences between an edge LB and a datapath node.
type tunnelRole interface {
	router
	fars() []far
	reload(context.Context) (apply func() error, err error)
	describe(*api.Status) error
}

// router names the links of the configuration by which packets come that this host sends out of other ones.
type router interface{ routed() []Routed }

// Periods of the upkeep. A neighbour that is in use is confirmed by the kernel; without that it is
// forgotten, and with it the way to the far end.
const (
	reachEvery   = 100 * time.Millisecond // for changes of next hops
	confirmEvery = time.Second
	followEvery  = time.Second // for changes of links and of the host's addresses
	sweepEvery   = time.Second
)

// tunnels runs the plane of an edge LB or a datapath node. Its flows end with it.
type tunnels struct {
	tunnelRole
	name, node, control string
	plane               TunnelPlane
	host                *Host
	hangups             <-chan os.Signal
	keeps
	tasks []func(context.Context) error // of the role, until the context ends

	changing sync.Mutex // a reload or a look at next hops at a time
	hops     map[string]NextHops
	known    map[int]topo.MAC
	by       map[int]string // the gateways that a far end waits for
	problems control.Problems

	kept atomic.Uint64
	reloads
}

// run attaches the plane and serves until ctx ends or a part fails.
func (d *tunnels) run(ctx context.Context) (err error) {
	d.hops, d.known, d.by = map[string]NextHops{}, map[int]topo.MAC{}, map[int]string{}
	defer func() {
		d.tell(isEnding)
		for _, h := range d.hops {
			h.Close()
		}
		if left := d.plane.Close(); err == nil && left != nil {
			err = fmt.Errorf("detach: %w", left)
		}
		d.host.Log.Info("detached", "role", d.name, "flows", d.kept.Load())
	}()
	socket, err := d.host.listen(d.control)
	if err != nil {
		return err
	}
	if socket != nil {
		defer socket.Close()
	}
	if err := d.reach(true); err != nil || ctx.Err() != nil {
		return err
	}
	if err := d.plane.Attach(); err != nil {
		return err
	}
	for _, a := range d.plane.Advice() {
		d.host.Log.Warn("the link costs speed or packets", "advice", a)
	}
	d.warn(d.host.Log)
	for _, a := range d.settings() {
		d.host.Log.Warn("a setting of this host loses packets", "advice", a)
	}
	d.host.Log.Info("ready", "role", d.name, "node", d.node, "links", d.links(), "control", d.control)
	d.tell(isReady)
	return d.serve(ctx, socket)
}

// settings is advice about those of the host now.
func (d *tunnels) settings() (all []string) {
	for _, r := range d.routed() {
		r.Link = d.plane.Interface(r.Link)
		of, err := d.host.Advice(r.Link, nil, false)
		if err != nil {
			of = append(of, fmt.Sprintf("the settings of %s cannot be checked: %v", r.Link, err))
		}
		all = append(append(all, of...), d.host.Routing(r)...)
	}
	return all
}

// familiesOf are those of prefixes of the client network.
func familiesOf(prefixes []netip.Prefix) (all []int) {
	for _, family := range []int{4, 6} {
		if slices.ContainsFunc(prefixes, func(p netip.Prefix) bool { return p.Addr().Is4() == (family == 4) }) {
			all = append(all, family)
		}
	}
	return all
}

// serve runs the daemon's goroutines while packets flow.
func (d *tunnels) serve(ctx context.Context, socket net.Listener) error {
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return d.host.answer(ctx, socket, d.control, d.status) })
	group.Go(func() error { return d.each(ctx, reachEvery, func() error { return d.reach(false) }) })
	group.Go(func() error { return d.each(ctx, confirmEvery, func() error { return d.reach(true) }) })
	group.Go(func() error { return d.each(ctx, followEvery, d.follow) })
	group.Go(func() error { return d.each(ctx, sweepEvery, d.sweep) })
	group.Go(func() error {
		d.hear(ctx)
		return nil
	})
	for _, task := range d.tasks {
		group.Go(func() error { return task(ctx) })
	}
	return group.Wait()
}

// each calls f at the end of each period until ctx ends or a link is gone. Another error does not stop the
// packets, so it is logged, once while it stays.
func (d *tunnels) each(ctx context.Context, period time.Duration, f func() error) error {
	ticks, stop := d.host.Clock.Tick(period)
	defer stop()
	logged := ""
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticks:
		}
		err, text := f(), ""
		if errors.Is(err, dataplane.ErrLinkGone) {
			return err
		}
		if err != nil {
			text = err.Error()
		}
		if text != logged && err != nil {
			d.host.Log.Error("upkeep of the data plane", "error", err)
		}
		logged = text
	}
}

// follow gives the plane its links and this host's addresses as they are now. After a change the next hops
// are looked for again: the kernel may have forgotten neighbours.
func (d *tunnels) follow() error {
	d.changing.Lock()
	changed, err := d.plane.Follow()
	if changed != "" {
		d.host.Log.Warn("a change is followed", "change", changed)
		for link, hops := range d.hops { // a link that was made again has others
			hops.Close()
			delete(d.hops, link)
		}
		d.known = map[int]topo.MAC{}
	}
	d.changing.Unlock()
	if changed != "" {
		err = errors.Join(err, d.reach(true))
	}
	return errors.Join(err, d.problems.Check(d.plane, d.host.Log))
}

func (d *tunnels) sweep() error {
	swept, err := d.plane.Sweep()
	d.kept.Store(swept.Kept)
	return err
}

// reach gives the plane the next hops of all far ends as the kernel has them now. confirm has the kernel
// look for those neighbours.
func (d *tunnels) reach(confirm bool) error {
	d.changing.Lock()
	defer d.changing.Unlock()
	fars := d.fars()
	var errs []error
	for _, link := range linksOf(fars) {
		errs = append(errs, d.reachOver(link, fars, confirm))
	}
	d.forget(fars)
	return errors.Join(errs...)
}

// reachOver is reach for the far ends on a link.
func (d *tunnels) reachOver(link string, fars []far, confirm bool) error {
	hops, watched := d.hops[link]
	if !watched {
		var err error
		if hops, err = d.host.NextHops(d.plane.Interface(link), netip.Prefix{}); err != nil {
			return errors.Join(err, d.give(link, fars, nil, nil)) // its far ends get no packets
		}
		d.hops[link] = hops
		confirm = true
	}
	if confirm {
		var targets []netip.Addr
		for _, f := range fars {
			if f.link == link {
				targets = append(targets, f.addr)
			}
		}
		if err := hops.Refresh(targets); err != nil {
			d.host.Log.Warn("some next hops cannot be resolved yet", "link", d.plane.Interface(link), "error", err)
		}
	}
	select {
	case <-hops.Changes():
	default:
		if watched && !confirm {
			return nil
		}
	}
	table, waiting, err := hops.Read()
	if err != nil {
		return fmt.Errorf("read the next hops of %s: %w", link, err)
	}
	return d.give(link, fars, table, waiting)
}

// give writes the next hops that are not as they were.
func (d *tunnels) give(link string, fars []far, table topo.NextHops, waiting topo.Waiting) error {
	for _, f := range fars {
		if f.link != link {
			continue
		}
		mac, _ := table.Lookup(f.addr)
		d.by[f.number] = control.ByGateways(table.By(f.addr, waiting))
		if f.down {
			mac = topo.MAC{}
		}
		if was, known := d.known[f.number]; known && was == mac {
			continue
		}
		if err := d.plane.SetNextHop(f.number, mac); err != nil {
			return err
		}
		d.known[f.number] = mac
		d.host.Log.Info("next hop", "address", f.addr, "reached", mac != topo.MAC{})
	}
	return nil
}

// forget drops the next hops of far ends and links that are gone.
func (d *tunnels) forget(fars []far) {
	for number := range d.known {
		if !slices.ContainsFunc(fars, func(f far) bool { return f.number == number }) {
			delete(d.known, number)
			delete(d.by, number)
		}
	}
	for link, hops := range d.hops {
		if !slices.Contains(linksOf(fars), link) {
			hops.Close()
			delete(d.hops, link)
		}
	}
}

func linksOf(fars []far) (all []string) {
	for _, f := range fars {
		all = append(all, f.link)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

func (d *tunnels) links() string { return strings.Join(linksOf(d.fars()), ",") }

// hear applies the configuration again at every SIGHUP; one with a mistake changes nothing.
func (d *tunnels) hear(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-d.hangups:
		}
		d.tell(isReloading(d.host.Clock.Now()))
		d.reloadOnce(ctx)
		d.tell(isReady)
	}
}

func (d *tunnels) reloadOnce(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, reloadsWithin)
	defer cancel()
	apply, err := d.reload(ctx) // no upkeep waits for the file
	d.changing.Lock()
	if err == nil {
		err = apply()
	}
	d.known = map[int]topo.MAC{} // an end that changed has no next hop
	d.changing.Unlock()
	if err != nil {
		d.refuse(err, d.host.Log)
		return
	}
	if err := d.reach(true); err != nil {
		d.host.Log.Error("upkeep of the data plane", "error", err)
	}
	d.applied(d.host.Log)
	d.warn(d.host.Log)
}

// tell sends a state to the service manager; that it cannot be sent ends no daemon.
func (d *tunnels) tell(state string) {
	if err := d.host.Notify(state); err != nil {
		d.host.Log.Warn("the service manager does not know", "error", err)
	}
}

// status describes the daemon now.
func (d *tunnels) status() (api.Status, error) {
	s := api.Status{
		Role: d.name, Node: d.node, Interface: d.links(), PID: os.Getpid(),
		Flows:     d.kept.Load(),
		NoNextHop: d.unreached(), Problems: d.problems.Now(), Counters: map[string]uint64{},
	}
	s.Advice = slices.Concat(d.plane.Advice(), d.leaks(), d.settings())
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

// unreached lists the far ends without a next hop.
func (d *tunnels) unreached() (list []string) {
	d.changing.Lock()
	defer d.changing.Unlock()
	for _, f := range d.fars() {
		if d.known[f.number] == (topo.MAC{}) {
			list = append(list, fmt.Sprintf("%s (%s)", f.addr, strings.TrimSpace("on "+f.link+" "+d.by[f.number])))
		}
	}
	return list
}
