package storms

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/vishvananda/netlink"

	"proffer/lab/farmrun"
	"proffer/lab/testbed"
	"proffer/lab/traffic"
	"proffer/lab/traffic/raw"
	"proffer/lab/traffic/responder"
	"proffer/topo"
)

// Loss loses frames on every link while short connections are made: is each
// served once, and does a client get a RST (docs/failures.md: "SYN retransmitted while
// hunting", "SYN-ACK lost")? The same without us shows TCP alone.
type Loss struct {
	Losses   []float64 // of frames, on every link in each direction
	Requests int       // a run
	Servers  int
	Seed     uint64
	Programs string // path of the proffer binary
}

// The ways through the lossy network.
const (
	lossHunt   = "hunt"
	lossSingle = "single"
	lossRoute  = "route" // the router's own route to one server
)

// How requests are sent under loss. A SYN that gets lost six times in a row is
// 63 s late (RFC 6298 §2.1, tcp_syn_retries).
const (
	lossRate   = 200 // a second
	lossWithin = time.Minute
)

// Check returns an error for settings that cannot be run.
func (e Loss) Check() error {
	if len(e.Losses) == 0 {
		return errors.New("--loss: name at least one share of frames")
	}
	for _, p := range e.Losses {
		if !(p >= 0 && p <= 0.2) {
			return fmt.Errorf("--loss %v: want 0 to 0.2: a handshake crosses up to ten links", p)
		}
	}
	switch {
	case e.Requests < 1 || e.Requests > 100_000:
		return fmt.Errorf("--requests %d: want 1 to 100000", e.Requests)
	case e.Servers < 2 || e.Servers > testbed.MaxServers:
		return fmt.Errorf("--servers %d: want 2 to %d: an offer goes from one to another", e.Servers, testbed.MaxServers)
	}
	return nil
}

// Run runs every way at every loss, on a farm each. Complete rows are in the
// report even if it fails.
func (e Loss) Run(ctx context.Context, show func(farmrun.Step)) (*LossReport, error) {
	r := &LossReport{experiment: e}
	ways := []string{lossHunt, lossSingle, lossRoute}
	each := time.Duration(e.Requests)*time.Second/lossRate + 10*time.Second
	p := &farmrun.Pace{Began: time.Now(), Total: len(e.Losses) * len(ways), Guess: each, Show: show}
	for _, loss := range e.Losses {
		for _, way := range ways {
			doing := fmt.Sprintf("%s, %.3g %% lost", way, 100*loss)
			p.Begin(doing)
			result, err := e.run(ctx, loss, way)
			if err != nil {
				return r, fmt.Errorf("%s: %w", doing, err)
			}
			r.results = append(r.results, result)
			p.End(doing)
		}
	}
	return r, nil
}

// run measures one way at one loss.
func (e Loss) run(ctx context.Context, loss float64, way string) (_ *lossy, err error) {
	bed, err := testbed.Up(ctx, testbed.Config{Servers: e.Servers, Clients: farmrun.ClientsFor(e.Requests)})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, bed.Close()) }()
	servers, err := farmrun.Serve(bed, responder.Machine{Cores: 2, Workers: 64})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, servers.Close()) }()
	stop, err := e.direct(ctx, bed, way)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, stop()) }()

	answers := &raw.SYNACKs{}
	defer func() { err = errors.Join(err, answers.Close()) }()
	for _, n := range bed.Servers {
		if err := answers.Watch(n.Name, "eth0", n.Enter); err != nil {
			return nil, err
		}
	}
	if err := bed.SetLoss(loss); err != nil {
		return nil, err
	}
	requests := traffic.Steady(lossRate, time.Duration(e.Requests)*time.Second/lossRate, farmrun.RandomEnds(e.Seed, bed.ClientAddrs, e.Requests)...)
	client := traffic.Client{To: netip.AddrPortFrom(bed.VIP, testbed.Port), Timeout: lossWithin, Enter: bed.Client.Enter}
	run, err := client.Run(ctx, requests)
	if err != nil {
		return nil, err
	}
	lost, err := bed.Lost()
	if err != nil {
		return nil, err
	}
	answered := answers.Most()
	if ok := traffic.Count(run.Rows, traffic.OK); len(answered) < ok {
		return nil, fmt.Errorf("SYN-ACKs to %d clients were seen on the servers' links, and %d had an answer", len(answered), ok)
	}
	return &lossy{
		loss: loss, way: way, rows: run.Rows, frames: lost,
		served: timesServed(servers), accepted: timesAccepted(servers), answered: answered,
	}, bed.SetLoss(0)
}

// direct makes packets for the VIP go that way, until stop.
func (e Loss) direct(ctx context.Context, bed *testbed.Bed, way string) (stop func() error, err error) {
	s := farmrun.Settings{Policy: topo.Policy{Dispatch: topo.Single}, Workers: 64, Cores: 2, Programs: e.Programs}
	switch way {
	case lossRoute:
		return func() error { return nil }, routeTo(bed, bed.Servers[0])
	case lossHunt:
		// About every second offer is passed on: both candidates' answers may
		// be lost.
		s.Policy = topo.Policy{Dispatch: topo.Hunt, Acceptance: topo.Dynamic}
	}
	farm, err := farmrun.Start(ctx, bed, s)
	if err != nil {
		return nil, err
	}
	return farm.Stop, nil
}

// routeTo makes the router send the VIP's packets to one server, as if there
// were no load balancer.
func routeTo(bed *testbed.Bed, n *testbed.Node) error {
	return bed.Router.Do(func() error {
		link, err := netlink.LinkByName(n.Link)
		if err != nil {
			return fmt.Errorf("find %s: %w", n.Link, err)
		}
		vip := netlink.NewIPNet(bed.VIP.AsSlice())
		if err := netlink.RouteReplace(&netlink.Route{Dst: vip, LinkIndex: link.Attrs().Index, Gw: n.Addr.AsSlice()}); err != nil {
			return fmt.Errorf("route %s to %s: %w", bed.VIP, n.Name, err)
		}
		return nil
	})
}

// timesServed counts by the servers' books how often each request was served.
func timesServed(servers *farmrun.Servers) map[string]int {
	times := map[string]int{}
	for _, served := range servers.Books() {
		for _, id := range served {
			times[id]++
		}
	}
	return times
}

// timesAccepted counts the connections of each client, on all servers.
func timesAccepted(servers *farmrun.Servers) map[netip.AddrPort]int {
	times := map[netip.AddrPort]int{}
	for _, s := range servers.All {
		for client, n := range s.Accepted() {
			times[client] += n
		}
	}
	return times
}
