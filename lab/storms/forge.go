package storms

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"time"

	"proffer/dataplane"
	"proffer/lab/farmrun"
	"proffer/lab/testbed"
	"proffer/lab/traffic"
	"proffer/lab/traffic/raw"
	"proffer/lab/traffic/responder"
	"proffer/topo"
)

// Forge sends SRv6 without a key to every node (docs/failures.md:
// "spoofed SR packets from outside", "malformed SRH", "forged client RST or
// FIN"). The edge of the domain is open, so that addresses inside can be spoofed:
// the nodes alone resist then.
//
// The functions without a tag, `as` and `dt`, are forged from outside the domain
// only: a host that can spoof the domain's addresses may send them (docs/design/wire.md).
type Forge struct {
	Packets  int
	Servers  int
	Seed     uint64
	Programs string // path of the proffer binary
}

const (
	forgeFlows = 200     // that live meanwhile
	forgeRate  = 100_000 // frames a second
	floodShare = 10      // one frame in so many is a RST or a FIN
	frameRest  = 500 * time.Millisecond
)

// Check returns an error for settings that cannot be run.
func (e Forge) Check() error {
	switch {
	case e.Packets < 1000 || e.Packets > 100_000_000:
		return fmt.Errorf("--packets %d: want 1000 to 100000000", e.Packets)
	case e.Servers < 2 || e.Servers > testbed.MaxServers:
		return fmt.Errorf("--servers %d: want 2 to %d", e.Servers, testbed.MaxServers)
	}
	return nil
}

// Run runs it once.
func (e Forge) Run(ctx context.Context, show func(farmrun.Step)) (_ *ForgeReport, err error) {
	left := time.Duration(e.Packets) * time.Second / forgeRate
	show(farmrun.Step{Doing: "building a farm", Total: e.Packets, Left: left})
	bed, err := testbed.Up(ctx, testbed.Config{Servers: e.Servers, OpenEdge: true})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, bed.Close()) }()
	echoes, err := farmrun.FarSidesOn(bed, testbed.Port, farmrun.NewEcho)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, echoes.Close()) }()
	farm, err := farmrun.Start(ctx, bed, farmrun.Settings{
		Policy: topo.Policy{Dispatch: topo.Hunt, Acceptance: topo.Static, Threshold: 4}, Workers: 32, Cores: 2, Programs: e.Programs,
	})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, farm.Stop()) }()
	flows, err := traffic.OpenFlows(ctx, traffic.Dial{
		To: netip.AddrPortFrom(bed.VIP, testbed.Port), From: farmrun.RandomEnds(e.Seed, bed.ClientAddrs, forgeFlows),
		Rate: openRate, Enter: bed.Client.Enter,
	})
	if err != nil {
		return nil, err
	}
	defer flows.Close()
	if err := allAlive(flows.Exchange(ctx, exchangeWithin)); err != nil {
		return nil, errors.Join(err, ctx.Err())
	}
	return e.forge(ctx, &attacked{farm: farm, echoes: echoes, flows: flows}, show)
}

// forge sends both kinds of frames and looks at the farm around each.
func (e Forge) forge(ctx context.Context, a *attacked, show func(farmrun.Step)) (*ForgeReport, error) {
	f, err := e.forger(a)
	if err != nil {
		return nil, err
	}
	r := &ForgeReport{Servers: e.Servers, Seed: e.Seed, Flows: forgeFlows}
	before, err := a.look(ctx)
	if err != nil {
		return nil, err
	}
	floods := e.Packets / floodShare
	show(farmrun.Step{Doing: "forging signals", Total: e.Packets, Left: time.Duration(e.Packets) * time.Second / forgeRate})
	if r.Signals, err = a.send(ctx, f.signal, e.Packets-floods); err != nil {
		return nil, err
	}
	after, err := a.look(ctx)
	if err != nil {
		return nil, err
	}
	r.signals(before, after)
	show(farmrun.Step{Doing: "forging RSTs and FINs", Done: r.Signals, Total: e.Packets, Left: time.Duration(floods) * time.Second / forgeRate})
	if r.Floods, err = a.send(ctx, f.flood, floods); err != nil {
		return nil, err
	}
	for _, answer := range a.flows.Exchange(ctx, exchangeWithin) {
		if answer.Outcome != traffic.OK {
			r.Lost++
		}
	}
	end, err := a.look(ctx)
	if err != nil {
		return nil, err
	}
	r.floods(before, end)
	show(farmrun.Step{Doing: "done", Done: e.Packets, Total: e.Packets})
	return r, nil
}

func (e Forge) forger(a *attacked) (*forger, error) {
	bed := a.farm.Bed
	ethernet, err := raw.Ethernet(bed.Client.Enter, "eth0", bed.VIP)
	return &forger{
		rng: rand.New(rand.NewPCG(e.Seed, 2)), ethernet: ethernet, vip: netip.AddrPortFrom(bed.VIP, testbed.Port),
		outside: bed.ClientAddrs[0], lbs: bed.LBs, servers: bed.Servers, live: farmrun.RandomEnds(e.Seed, bed.ClientAddrs, forgeFlows),
	}, err
}

// attacked is a farm that a forger speaks to.
type attacked struct {
	farm   *farmrun.Farm
	echoes farmrun.FarSides
	flows  *traffic.Flows
}

// send sends frames from the client and lets the last of them arrive.
func (a *attacked) send(ctx context.Context, frame func(int) []byte, n int) (int, error) {
	sent, err := raw.Forge{Interface: "eth0", Frame: frame, Frames: n, Rate: forgeRate, Enter: a.farm.Bed.Client.Enter}.Run(ctx)
	if err != nil {
		return sent.Frames, err
	}
	return sent.Frames, farmrun.Sleep(ctx, frameRest)
}

// seen is a farm's visible state at one moment.
type seen struct {
	maps     map[string]string // by node: the sum of its flow tables
	entries  int
	segments uint64 // that the kernels' TCP got, the client's included
	accepted int    // connections
	asking   uint32 // connections with a request in progress, by the agents
	counters map[string]uint64
}

// look reads tables, kernels, servers and daemons.
func (a *attacked) look(ctx context.Context) (s seen, err error) {
	s = seen{maps: map[string]string{}, counters: map[string]uint64{}}
	bed := a.farm.Bed
	for _, n := range append(append([]*testbed.Node{bed.Client}, bed.LBs...), bed.Servers...) {
		segments, err := farmrun.TCPCounter(n, "InSegs")
		if err != nil {
			return s, err
		}
		s.segments += segments
		if n == bed.Client {
			continue
		}
		sum, entries, err := dataplane.DumpPinned(n.Pin())
		if err != nil {
			return s, err
		}
		s.maps[n.Name], s.entries = sum, s.entries+entries
		if err := s.ask(ctx, a.farm, n); err != nil {
			return s, err
		}
	}
	for _, server := range a.echoes {
		for _, times := range server.(*responder.Echo).Accepted() {
			s.accepted += times
		}
	}
	return s, nil
}

// ask adds a daemon's status.
func (s *seen) ask(ctx context.Context, farm *farmrun.Farm, n *testbed.Node) error {
	status, err := farm.Status(ctx, n)
	if err != nil {
		return err
	}
	for name, value := range status.Counters {
		s.counters[status.Role+"."+name] += value
	}
	for _, service := range status.Services {
		if service.Load != nil {
			s.asking += service.Load.Asking
		}
	}
	return nil
}
