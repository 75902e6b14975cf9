package experiment

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"time"

	"proffer/lab/testbed"
	"proffer/lab/trace"
	"proffer/lab/traffic"
	"proffer/policy"
)

// SRLB is the experiment of SRLB §V: Poisson arrivals of exponential requests
// on a farm of prefork servers, one run a policy on the same arrivals.
type SRLB struct {
	Kinds
	LBs      int // 0 means 1
	Policies []Compared
	Load     float64 // ρ, of the farm's capacity
	Requests int     // a policy
	Mean     time.Duration
	Seed     uint64
	Programs string // path of the proffer binary
	Out      string // gets the rows of each policy when its run is over; empty: nowhere
}

// Progress is how far a run is.
type Progress struct {
	Policy      Compared
	Run, Runs   int // the first is 1
	Try         int // 2: the machine was too busy for the first
	Done, Total int // requests of this run
	Left        time.Duration
}

const (
	firstPort = 1024
	ports     = 64000 // a client address
	aroundRun = 1500 * time.Millisecond
)

// Duration estimates how long the whole experiment takes.
func (e SRLB) Duration() time.Duration {
	return time.Duration(len(e.Policies)) * (e.runDuration() + aroundRun)
}

// rate of arrivals, a second.
func (e SRLB) rate() float64 {
	return e.Load * e.Capacity() / e.Mean.Seconds()
}

func (e SRLB) runDuration() time.Duration {
	return time.Duration(float64(e.Requests) / e.rate() * float64(time.Second))
}

// Run runs every policy. Results are in the report even if it fails, or their rows cannot be
// written. A result is marked as late if its generator could not keep its schedule.
func (e SRLB) Run(ctx context.Context, progress func(Progress)) (*Report, error) {
	report := &Report{Seed: e.Seed, Load: e.Load, experiment: e}
	preferThisProcess()
	bed, err := testbed.Up(ctx, testbed.Config{Servers: e.Servers, LBs: e.LBs, Clients: e.clients() * tries * len(e.Policies)})
	if err != nil {
		return report, err
	}
	arrivals := trace.Poisson(e.Seed, e.Requests, e.rate(), e.Mean)
	for i, p := range e.Policies {
		result, err := e.try(ctx, bed, i, arrivals, progress)
		if err != nil {
			return report, errors.Join(fmt.Errorf("%s: %w", p, err), bed.Close())
		}
		report.add(result)
		report.keep(result)
	}
	return report, bed.Close()
}

// tries of a run until its generator keeps its schedule: a busy machine is
// often busy for a moment only.
const tries = 2

// clients is how many client addresses a run needs.
func (e SRLB) clients() int { return (e.Requests + ports - 1) / ports }

// try runs policy i, again if the machine was too busy.
func (e SRLB) try(ctx context.Context, bed *testbed.Bed, i int, arrivals []trace.Arrival, progress func(Progress)) (result *Result, err error) {
	after := time.Duration(len(e.Policies)-1-i) * (e.runDuration() + aroundRun)
	for k := range tries {
		// Other client addresses each run, apart from sockets in TIME_WAIT.
		first := (i*tries + k) * e.clients()
		requests := requestsFrom(arrivals, bed.ClientAddrs[first:first+e.clients()])
		start := time.Now()
		result, err = e.run(ctx, bed, e.Policies[i], requests, func(done, total int) {
			left := max(e.runDuration()-time.Since(start), 0) + after
			progress(Progress{Policy: e.Policies[i], Run: i + 1, Runs: len(e.Policies), Try: k + 1, Done: done, Total: total, Left: left})
		})
		if err != nil || result.Late == nil {
			break
		}
	}
	return result, err
}

// quit is the number of requests that make a row of a run that is late for good: a tenth.
func (e SRLB) quit() int { return (e.Requests + 9) / 10 }

func requestsFrom(arrivals []trace.Arrival, clients []netip.Addr) []traffic.Request {
	requests := make([]traffic.Request, len(arrivals))
	for i, a := range arrivals {
		from := netip.AddrPortFrom(clients[i/ports], uint16(firstPort+i%ports))
		requests[i] = traffic.Request{At: a.At, Service: a.Service, From: from}
	}
	return requests
}

// run measures one policy on the bed.
func (e SRLB) run(ctx context.Context, bed *testbed.Bed, p Compared, requests []traffic.Request, progress func(done, total int)) (*Result, error) {
	return webRun{kinds: e.Kinds, policy: p, weights: e.weights(p.Inverted), programs: e.Programs, requests: requests, quit: e.quit(), progress: progress}.run(ctx, bed)
}

// conclude makes a run's rows a result, if every request was answered by a candidate of its
// flow, which served it once.
func conclude(r *Result, farm *Farm, books map[string][]string) (*Result, error) {
	if err := errors.Join(locate(farm, r.Rows), servedOnce(books, r.Rows)); err != nil {
		return nil, err
	}
	return r, nil
}

// locate fills in how many servers saw each request's offer: the list of its
// flow is known (Farm.Candidates), and so is the server that answered. Where the LB chooses by
// more than the flow's hash there is no list, and one server saw it.
func locate(farm *Farm, rows []traffic.Row) error {
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

// servedOnce checks that every answered request was served once, by the server
// that answered it. The books are the requests that each server served.
func servedOnce(books map[string][]string, rows []traffic.Row) error {
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

// dropped are the refusals that only kernels see.
type dropped struct{ synRetransmits, listenDrops uint64 }

func (d dropped) since(before dropped) dropped {
	return dropped{d.synRetransmits - before.synRetransmits, d.listenDrops - before.listenDrops}
}

// drops reads the client's SYN retransmissions and the servers' listen drops.
func drops(bed *testbed.Bed) (d dropped, err error) {
	read := func(n *testbed.Node) (seen traffic.Drops, err error) {
		err = n.Do(func() (err error) {
			seen, err = traffic.ReadDrops(traffic.NetstatPath)
			return err
		})
		return seen, err
	}
	client, err := read(bed.Client)
	if err != nil {
		return d, err
	}
	d.synRetransmits = client.SYNRetransmits
	for _, n := range bed.Servers {
		server, err := read(n)
		if err != nil {
			return d, err
		}
		d.listenDrops += server.ListenDrops
	}
	return d, nil
}
