package storms

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"proffer/lab/farmrun"
	"proffer/lab/testbed"
	"proffer/lab/traffic/responder"
)

// trouble is a kind of change that a storm makes, to a random node each time. It returns an
// error if the daemons do not notice, or if the change cannot be made.
type trouble struct {
	name    string
	make    func(ctx context.Context, n *testbed.Node) error
	nodes   []*testbed.Node
	counted string // by role and counter, which must move; empty: make asks the daemon
	times   int
}

// turns are so many that each trouble of the longer lane has had its own; after the last
// one, an interval goes by.
const turns = 8

// lane makes its troubles in turn, in a random order each round, at each interval.
func (w *weather) lane(ctx context.Context, lane int, troubles []*trouble, began time.Time, show func(farmrun.Step)) error {
	e := w.experiment
	rng := rand.New(rand.NewPCG(e.Seed, uint64(lane)))
	var order []int
	for i := range e.acts() / 2 {
		if err := farmrun.Sleep(ctx, time.Until(began.Add(time.Duration(i+1)*e.Every))); err != nil {
			return err
		}
		if len(order) == 0 {
			order = rng.Perm(len(troubles))
		}
		t := troubles[order[0]]
		order = order[1:]
		n := t.nodes[rng.IntN(len(t.nodes))]
		show(farmrun.Step{Doing: fmt.Sprintf("%s at %s", t.name, n.Name), Done: 2 * i, Total: e.acts(), Left: e.For - time.Since(began)})
		if err := t.make(ctx, n); err != nil {
			return fmt.Errorf("%s at %s, %v after the start: %w", t.name, n.Name, time.Since(began).Round(time.Millisecond), err)
		}
		t.times++
	}
	return nil
}

// daemonTroubles end and start daemons.
func (w *weather) daemonTroubles() []*trouble {
	all := append(append([]*testbed.Node{}, w.bed.LBs...), w.bed.Servers...)
	return []*trouble{
		{name: "SIGHUP", nodes: all, make: w.farm.Reload},
		{name: "SIGTERM", nodes: all, make: w.restart(unix.SIGTERM)},
		{name: "SIGKILL", nodes: all, make: w.restart(unix.SIGKILL)},
	}
}

// restart ends a daemon and starts the next, which must take over.
func (w *weather) restart(s os.Signal) func(context.Context, *testbed.Node) error {
	return func(ctx context.Context, n *testbed.Node) error {
		if err := w.books.take(ctx, w.farm, n); err != nil {
			return err
		}
		p := w.farm.Daemon(n)
		if err := p.Signal(s); err != nil {
			return err
		}
		<-p.Done()
		if err := w.farm.Launch(ctx, n); err != nil {
			return err
		}
		status, err := w.farm.Status(ctx, n)
		if err == nil && !status.Adopted {
			err = fmt.Errorf("the next daemon took nothing over: %s", w.farm.Daemon(n).Log())
		}
		return err
	}
}

// linkTroubles change links, routes and containers under the daemons.
func (w *weather) linkTroubles() []*trouble {
	all := append(append([]*testbed.Node{}, w.bed.LBs...), w.bed.Servers...)
	return []*trouble{
		{name: "a burst of routes", nodes: all, make: func(_ context.Context, n *testbed.Node) error { return n.BurstRoutes(400) }},
		{name: "another MAC", nodes: all, make: func(_ context.Context, n *testbed.Node) error { return n.SetMAC(w.mac()) }},
		{name: "another MAC of the gateway", nodes: all, make: func(_ context.Context, n *testbed.Node) error { return n.SetGatewayMAC(w.mac()) }},
		{name: "a program before ours", nodes: w.bed.Servers, make: w.foreign(testbed.ForeignWatcher)},
		{name: "a program that bypasses ours", nodes: w.bed.Servers, make: w.foreign(testbed.ForeignTaker)},
		{name: "a burst of stray ACKs", nodes: w.bed.LBs, counted: "lb.drop_limit_stray", make: w.burst},
		{name: "a container restarted", nodes: w.bed.Servers[w.experiment.Servers-1:], make: func(context.Context, *testbed.Node) error {
			return w.box.restart()
		}},
	}
}

// mac is a link address that no link has. Only the lane of the links asks for one.
func (w *weather) mac() net.HardwareAddr {
	w.macs++
	return net.HardwareAddr{2, 0xab, 0, byte(w.macs >> 16), byte(w.macs >> 8), byte(w.macs)}
}

// foreign attaches a program of another owner before the agent's for a while. The agent
// names it, and names it no longer when it is gone.
func (w *weather) foreign(f testbed.Foreign) func(context.Context, *testbed.Node) error {
	return func(ctx context.Context, n *testbed.Node) error {
		remove, err := n.Intrude(f)
		if err != nil {
			return err
		}
		err = w.wantBefore(ctx, n, true)
		if err := errors.Join(err, remove()); err != nil {
			return err
		}
		return w.wantBefore(ctx, n, false)
	}
}

// noticedWithin bounds the time until a daemon reports a change of its surroundings.
const noticedWithin = time.Minute

func (w *weather) wantBefore(ctx context.Context, n *testbed.Node, want bool) error {
	for until := time.Now().Add(noticedWithin); ; {
		s, err := w.farm.Status(ctx, n)
		named := slices.ContainsFunc(s.Problems, func(p string) bool { return strings.Contains(p, "before our program") })
		if err == nil && named == want {
			return nil
		}
		if time.Now().After(until) {
			return fmt.Errorf("that the agent names the other program is not %v within %v: problems %q, %v", want, noticedWithin, s.Problems, err)
		}
		if err := farmrun.Sleep(ctx, 50*time.Millisecond); err != nil {
			return err
		}
	}
}

// container is a web server in a namespace of its own, which can be replaced.
type container struct {
	bed      *testbed.Bed
	app      *testbed.Node
	at       netip.AddrPort
	machine  responder.Machine
	web      *farmrun.Servers
	restarts []outage
}

// outage is the time in which a container served nothing: from the last moment at which it
// did, to the first.
type outage struct{ from, closed, to time.Time }

func newContainer(bed *testbed.Bed, server *testbed.Node, at netip.AddrPort, m responder.Machine) (*container, error) {
	app, err := bed.Behind(server, testbed.RoutedVeth)
	if err != nil {
		return nil, err
	}
	c := &container{bed: bed, app: app, at: at, machine: m}
	c.web, err = farmrun.ServeAt([]*testbed.Node{app}, at, m)
	return c, err
}

func (c *container) restart() (err error) {
	o := outage{from: time.Now()}
	if err := c.web.Close(); err != nil {
		return err
	}
	o.closed = time.Now()
	if c.app, err = c.bed.Restart(c.app); err != nil {
		return err
	}
	c.web, err = farmrun.ServeAt([]*testbed.Node{c.app}, c.at, c.machine)
	o.to = time.Now()
	c.restarts = append(c.restarts, o)
	return err
}

func (c *container) Close() error { return c.web.Close() }
