package farmrun

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"time"

	"proffer/lab/testbed"
	"proffer/lab/traffic"
	"proffer/lab/traffic/responder"
	"proffer/policy"
	"proffer/topo"
)

// AroundRun is what a run takes beside its requests.
const AroundRun = 1500 * time.Millisecond

// Web is requests of one policy to a farm on virtual cores, with daemons and servers of
// its own.
type Web struct {
	Kinds    Kinds
	Policy   Compared
	Weights  []int // configured ones of the servers; nil: they are alike
	Programs string
	Requests []traffic.Request
	// quit is the number of requests after which a run is given up that can no longer keep its
	// schedule.
	Quit     int
	Progress func(done, total int)
	// watch begins with the requests, and its stop comes after the last of them; nil: none.
	Watch func(context.Context, *Farm, *Servers) (stop func() error)
}

// settings are those of the farm.
func (w Web) settings(bed *testbed.Bed) Settings {
	return Settings{
		Policy: w.Policy.Policy, Workers: w.Kinds.Workers, Cores: w.Kinds.Cores, Programs: w.Programs,
		Weights: w.Weights,
		Agent: func(n *testbed.Node, agent *topo.Agent) {
			agent.Services[0].Cores = w.Kinds.Machine(slices.Index(bed.Servers, n)).Cores
		},
	}
}

// Run makes the run. The result tells if the generator was late.
func (w Web) Run(ctx context.Context, bed *testbed.Bed) (_ *Result, err error) {
	servers, err := Serve(bed, w.Kinds.Machines()...)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, servers.Close()) }()
	farm, err := Start(ctx, bed, w.settings(bed))
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, farm.Stop()) }()
	before, err := ReadDrops(bed)
	if err != nil {
		return nil, err
	}
	stop := func() error { return nil }
	if w.Watch != nil {
		stop = w.Watch(ctx, farm, servers)
	}
	sampler := Sample(servers.Busy)
	client := traffic.Client{To: netip.AddrPortFrom(bed.VIP, testbed.Port), Enter: bed.Client.Enter, Quit: w.Quit, Progress: w.Progress}
	run, err := client.Run(ctx, w.Requests)
	loads := sampler.Stop()
	if err = errors.Join(err, stop()); err != nil {
		return nil, err
	}
	after, err := ReadDrops(bed)
	if err != nil {
		return nil, err
	}
	r := &Result{Policy: w.Policy, Rows: run.Rows, Loads: loads, Late: run.Schedule.Kept(), Drops: after.Since(before), Kinds: w.Kinds}
	return conclude(r, farm, servers.Books())
}

// conclude makes a run's rows a result, if every request was answered by a candidate of its
// flow, which served it once.
func conclude(r *Result, farm *Farm, books map[string][]string) (*Result, error) {
	if err := errors.Join(Locate(farm, r.Rows), ServedOnce(books, r.Rows)); err != nil {
		return nil, err
	}
	return r, nil
}

// Locate fills in how many servers saw each request's offer: the list of its
// flow is known (Farm.Candidates), and so is the server that answered. Where the LB chooses by
// more than the flow's hash there is no list, and one server saw it.
func Locate(farm *Farm, rows []traffic.Row) error {
	number := map[string]int{}
	for i, s := range farm.Service.Servers {
		number[s.Name] = i
	}
	hashed, lb := !farm.Service.Dispatch.Seats(), ""
	if len(farm.Bed.LBs) == 1 { // else the router chose by a hash of its own
		lb = farm.Bed.LBs[0].Name
	}
	vip := netip.AddrPortFrom(farm.Service.VIP.Addr, farm.Service.VIP.Port)
	for i := range rows {
		row := &rows[i]
		if row.Server == "" {
			continue
		}
		row.LB = lb
		if !hashed {
			row.Hops = 1
			continue
		}
		list, err := farm.Candidates(policy.Flow{Client: row.From, VIP: vip})
		if err != nil {
			return err
		}
		for hop, candidate := range list {
			if int(candidate) == number[row.Server] {
				row.Hops = hop + 1
			}
		}
		if row.Hops == 0 {
			return fmt.Errorf("request %d from %s was answered by %s, which was not among its candidates", row.ID, row.From, row.Server)
		}
	}
	return nil
}

// ServedOnce checks that every answered request was served once, by the server
// that answered it. The books are the requests that each server served.
func ServedOnce(books map[string][]string, rows []traffic.Row) error {
	by := map[string]string{}
	for server, served := range books {
		for _, id := range served {
			if _, twice := by[id]; twice {
				return fmt.Errorf("request %s was served twice", id)
			}
			by[id] = server
		}
	}
	for _, r := range rows {
		if r.Outcome == traffic.OK && by[strconv.Itoa(r.ID)] != r.Server {
			return fmt.Errorf("request %d was answered by %q and served by %q", r.ID, r.Server, by[strconv.Itoa(r.ID)])
		}
	}
	return nil
}

// ReadDrops reads the client's SYN retransmissions and the servers' listen drops.
func ReadDrops(bed *testbed.Bed) (d responder.Drops, err error) {
	read := func(n *testbed.Node) (seen responder.Drops, err error) {
		err = n.Do(func() (err error) {
			seen, err = responder.ReadDrops(responder.NetstatPath)
			return err
		})
		return seen, err
	}
	client, err := read(bed.Client)
	if err != nil {
		return d, err
	}
	d.SYNRetransmits = client.SYNRetransmits
	for _, n := range bed.Servers {
		server, err := read(n)
		if err != nil {
			return d, err
		}
		d.ListenDrops += server.ListenDrops
	}
	return d, nil
}

// Tries of a run until its generator keeps its schedule: a busy machine is
// often busy for a moment only.
const Tries = 2
