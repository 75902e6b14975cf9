// Package storms makes a farm fail as networks do: servers and LBs that are replaced or killed,
// floods, losses, forged signals, and all troubles at once.
package storms

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"golang.org/x/sync/errgroup"

	"proffer/lab/farmrun"
	"proffer/lab/testbed"
	"proffer/lab/traffic"
	"proffer/lab/traffic/responder"
	"proffer/topo"
)

// Storm makes the troubles of docs/failures.md all at once, under traffic: daemons end and
// start, links and containers change, other programs come and go, and an attacker fills
// tables. Clients must notice none of it, and each abuse is counted under its name.
//
//	web     all servers but the last       short requests: none fails, none takes over 1.5 s
//	shell   the same servers               long flows: none is lost
//	dns     the same servers               datagrams of clients that do not exist
//	boxed   the last two servers; the last one's is in a container, which is restarted
type Storm struct {
	For, Every   time.Duration // of the storm; of a turn of each kind of trouble
	LBs, Servers int
	Rate         float64 // short requests a second
	Flows        int     // long ones
	Seed         uint64
	Programs     string // path of the proffer binary
}

const (
	boxedPort, dnsPort = 8080, 53
	boxedShare         = 0.1 // of the rate

	stormLines = 4096 // entries of an LB's table of flows: the attack fills them in seconds
	stormConns = 4096 // of an agent's
)

// Asks is the most that the experiment asks of this machine.
func (e Storm) Asks() farmrun.Asks { return farmrun.Asks{Rate: e.Rate, Mean: 20 * time.Millisecond} }

// Check returns an error for settings that cannot be run.
func (e Storm) Check() error {
	switch {
	case e.Every < 500*time.Millisecond || e.Every > time.Minute:
		return fmt.Errorf("--every %v: want 500ms to 1m", e.Every)
	case e.For < time.Duration(turns)*e.Every || e.For > time.Hour:
		return fmt.Errorf("--for %v: want at least %d times --every, so that each kind of trouble has its turn, and at most 1h", e.For, turns)
	case e.LBs < 1 || e.LBs > testbed.MaxLBs:
		return fmt.Errorf("--lbs %d: want 1 to %d", e.LBs, testbed.MaxLBs)
	case e.Servers < 3 || e.Servers > testbed.MaxServers:
		return fmt.Errorf("--servers %d: want 3 to %d: one is in a container", e.Servers, testbed.MaxServers)
	case !(e.Rate >= 1 && e.Rate <= 2000):
		return fmt.Errorf("--rate %v: want 1 to 2000", e.Rate)
	case e.Flows < 1 || e.Flows > MaxFlows:
		return fmt.Errorf("--flows %d: want 1 to %d", e.Flows, MaxFlows)
	}
	return nil
}

// settings are those of the farm behind the bed.
func (e Storm) settings(bed *testbed.Bed, app *testbed.Node) farmrun.Settings {
	last := bed.Servers[e.Servers-1]
	web := serversOf(bed.Servers[:e.Servers-1])
	return farmrun.Settings{
		Policy: topo.Policy{Dispatch: topo.Hunt, Acceptance: topo.Static, Threshold: 4}, Workers: 32, Cores: 2, Programs: e.Programs, Lasting: true,
		LB: func(lb *topo.LB) {
			lb.Flows.Entries = stormLines
			first := lb.Services[0]
			first.Servers = web
			lb.Services = []topo.Service{first}
			for _, s := range e.services(first.VIP) {
				other := first
				other.Name, other.VIP = s.Name, s.VIP
				if s.VIP.Port == boxedPort {
					other.Servers = serversOf(bed.Servers[e.Servers-2:])
				}
				lb.Services = append(lb.Services, other)
			}
		},
		Agent: func(n *testbed.Node, a *topo.Agent) {
			a.Flows.Entries, a.Flows.Embryonic = stormConns, stormConns
			first := a.Services[0]
			a.Services = nil
			if n != last {
				a.Services = append(a.Services, first)
			}
			for _, s := range e.services(first.VIP) {
				other := first
				other.Name, other.VIP = s.Name, s.VIP
				switch boxed := s.VIP.Port == boxedPort; {
				case n == last && boxed:
					other.Owner, other.Netns = topo.Netns, app.Path()
				case boxed != (n == bed.Servers[e.Servers-2]) && boxed, n == last:
					continue
				}
				a.Services = append(a.Services, other)
			}
		},
	}
}

// services are those beside the web's.
func (e Storm) services(vip topo.VIP) []topo.Service {
	at := func(name string, port uint16, protocol topo.Protocol) topo.Service {
		return topo.Service{Name: name, VIP: topo.VIP{Addr: vip.Addr, Port: port, Protocol: protocol}}
	}
	return []topo.Service{at("shell", echoPort, topo.TCP), at("dns", dnsPort, topo.UDP), at("boxed", boxedPort, topo.TCP)}
}

// Run runs it once.
func (e Storm) Run(ctx context.Context, show func(farmrun.Step)) (_ *StormReport, err error) {
	farmrun.Prefer()
	show(farmrun.Step{Doing: "building a farm", Total: e.acts(), Left: e.For})
	web, boxed := traffic.Steady(e.Rate, e.For), traffic.Steady(max(1, boxedShare*e.Rate), e.For)
	addresses := farmrun.ClientsFor(len(web) + len(boxed))
	bed, err := testbed.Up(ctx, testbed.Config{Servers: e.Servers, LBs: e.LBs, Clients: 1 + addresses, OpenEdge: true})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, bed.Close()) }()
	for i, from := range farmrun.RandomEnds(e.Seed, bed.ClientAddrs[1:], len(web)+len(boxed)) {
		if i < len(web) {
			web[i].From = from
		} else {
			boxed[i-len(web)].From = from
		}
	}
	w := &weather{experiment: e, bed: bed, web: web, boxed: boxed}
	defer func() { err = errors.Join(err, w.close()) }()
	if err := w.build(ctx); err != nil {
		return nil, err
	}
	return w.measure(ctx, show)
}

// acts is the number of turns of both lanes together.
func (e Storm) acts() int { return 2 * int((e.For-1)/e.Every) }

// weather is a farm in a storm.
type weather struct {
	experiment Storm
	bed        *testbed.Bed
	farm       *farmrun.Farm
	box        *container
	web, boxed []traffic.Request
	flows      *traffic.Flows
	far        []interface{ Close() error }
	books      books
	macs       int // given so far
}

// build starts the servers, the daemons and the long flows.
func (w *weather) build(ctx context.Context) (err error) {
	e, bed := w.experiment, w.bed
	machine := responder.Machine{Cores: 2, Workers: 32}
	vip := func(port uint16) netip.AddrPort { return netip.AddrPortFrom(bed.VIP, port) }
	most := bed.Servers[:e.Servers-1]
	for _, start := range []func() (interface{ Close() error }, error){
		func() (interface{ Close() error }, error) { return farmrun.ServeAt(most, vip(testbed.Port), machine) },
		func() (interface{ Close() error }, error) {
			return farmrun.FarSidesAt(most, vip(echoPort), farmrun.NewEcho)
		},
		func() (interface{ Close() error }, error) { return serveSinks(most, vip(dnsPort)) },
		func() (interface{ Close() error }, error) {
			return farmrun.ServeAt(most[len(most)-1:], vip(boxedPort), machine)
		},
		func() (_ interface{ Close() error }, err error) {
			w.box, err = newContainer(bed, bed.Servers[e.Servers-1], vip(boxedPort), machine)
			return w.box, err
		},
	} {
		far, err := start()
		if err != nil {
			return err
		}
		w.far = append(w.far, far)
	}
	if w.farm, err = farmrun.Start(ctx, bed, e.settings(bed, w.box.app)); err != nil {
		return err
	}
	w.flows, err = traffic.OpenFlows(ctx, traffic.Dial{
		To: vip(echoPort), From: farmrun.FromPorts(bed.ClientAddrs[0], e.Flows), Rate: openRate, Enter: bed.Client.Enter,
	})
	if err != nil {
		return err
	}
	return errors.Join(allAlive(w.flows.Exchange(ctx, exchangeWithin)), ctx.Err())
}

func (w *weather) close() error {
	var errs []error
	if w.flows != nil {
		errs = append(errs, w.flows.Close())
	}
	if w.farm != nil {
		errs = append(errs, w.farm.Stop())
	}
	for _, far := range w.far {
		errs = append(errs, far.Close())
	}
	return errors.Join(errs...)
}

// measure lets traffic, attacks and troubles go on at the same time.
func (w *weather) measure(ctx context.Context, show func(farmrun.Step)) (*StormReport, error) {
	e := w.experiment
	r := &StormReport{experiment: e}
	attacks, err := w.attacks()
	if err != nil {
		return nil, err
	}
	lanes := [][]*trouble{w.daemonTroubles(), w.linkTroubles()}
	group, running := errgroup.WithContext(ctx)
	began := time.Now()
	r.began = began
	for _, of := range []struct {
		port     uint16
		requests []traffic.Request
		rows     *traffic.Result
	}{{testbed.Port, w.web, &r.web}, {boxedPort, w.boxed, &r.boxed}} {
		group.Go(func() (err error) {
			client := traffic.Client{To: netip.AddrPortFrom(w.bed.VIP, of.port), Enter: w.bed.Client.Enter}
			*of.rows, err = client.Run(running, of.requests)
			return err
		})
	}
	for _, a := range attacks {
		group.Go(func() error { return a.run(running, e.For) })
	}
	for lane, troubles := range lanes {
		group.Go(func() error { return w.lane(running, lane, troubles, began, show) })
	}
	group.Go(func() error { return w.talk(running, began) })
	if err := group.Wait(); err != nil {
		return nil, err
	}
	if err := w.insist(ctx, attacks, lanes, show); err != nil {
		return nil, err
	}
	show(farmrun.Step{Doing: "asking all flows", Done: e.acts(), Total: e.acts()})
	r.flows = w.flows.Exchange(ctx, exchangeWithin)
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	r.restarts = w.box.restarts
	return r, w.settle(ctx, r, attacks, lanes)
}

// talk lets all long flows exchange a line now and then.
func (w *weather) talk(ctx context.Context, began time.Time) error {
	for time.Since(began) < w.experiment.For {
		w.flows.Exchange(ctx, exchangeWithin)
		if err := farmrun.Sleep(ctx, time.Second); err != nil {
			return err
		}
	}
	return nil
}
