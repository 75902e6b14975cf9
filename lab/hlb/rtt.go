package hlb

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"proffer/lab/farmrun"
	"proffer/lab/testbed"
	"proffer/lab/trace"
	"proffer/lab/traffic"
	"proffer/topo"
)

// RTT puts a round trip between the clients and a farm of LBs that learn, without agents: the paper's
// rule (a flow counts from its first data packet on, HLB §IV-A) lets new flows herd for a round
// trip, which the paper's testbed hides. Half of the servers have twice the cores. Each way meets the
// same arrivals; one is flooded with SYNs of clients that do not exist.
type RTT struct {
	RTTs     []time.Duration
	Servers  int
	LBs      int
	Cores    int           // of the slower servers; the others have twice as many
	Mean     time.Duration // service time of a request
	Load     float64       // ρ, of the farm's capacity
	For      time.Duration // of a run's arrivals
	Quick    bool          // arrivals of quickRTT
	Flood    float64       // forged SYNs a second, over the rate of requests
	Seed     uint64
	Programs string // path of the proffer binary
}

const (
	quickRTT = 20 * time.Second
	// rttWorkers is how many requests a server has in hand at once.
	rttWorkers = 32
	// rttWarm is the part of the arrivals that does not count: queues fill and speeds are learned.
	rttWarm = 0.25
)

// rttWay is how the servers of a run are chosen, and whether forged SYNs come.
type rttWay struct {
	dispatch topo.Dispatch
	flooded  bool
}

func rttWays() []rttWay {
	return []rttWay{{topo.Learned, false}, {topo.LearnedLiteral, false}, {topo.Learned, true}}
}

// Check returns an error for settings that cannot be run.
func (e RTT) Check() error {
	switch {
	case len(e.RTTs) == 0 || e.RTTs[0] != 0:
		return errors.New("--rtts: want 0s first, which the others are compared with")
	case slices.Min(e.RTTs) < 0 || slices.Max(e.RTTs) > 500*time.Millisecond:
		return errors.New("--rtts: want 0s to 500ms")
	case e.Servers < 2 || e.Servers > testbed.MaxServers:
		return fmt.Errorf("--servers %d: want 2 to %d", e.Servers, testbed.MaxServers)
	case e.LBs < 1 || e.LBs > testbed.MaxLBs:
		return fmt.Errorf("--lbs %d: want 1 to %d", e.LBs, testbed.MaxLBs)
	case e.Cores < 1 || 2*e.Cores > rttWorkers:
		return fmt.Errorf("--cores %d: want 1 to %d", e.Cores, rttWorkers/2)
	case e.Mean < time.Millisecond || e.Mean > 10*time.Second:
		return fmt.Errorf("--mean %v: want 1ms to 10s", e.Mean)
	case !(e.Load > 0 && e.Load < 1):
		return fmt.Errorf("--load %v: want more than 0, less than 1", e.Load)
	case e.For < time.Second || e.For > time.Hour:
		return fmt.Errorf("--for %v: want 1s to 1h", e.For)
	case !(e.Flood > 0 && e.Flood <= 100):
		return fmt.Errorf("--flood %v: want more than 0, to 100", e.Flood)
	}
	return nil
}

// kinds are the servers of the farm.
func (e RTT) kinds() farmrun.Kinds {
	return farmrun.Kinds{Servers: e.Servers, Cores: e.Cores, Workers: rttWorkers, Fast: e.Servers / 2, FastCores: 2 * e.Cores}
}

// rate of arrivals, a second.
func (e RTT) rate() float64 { return e.Load * e.kinds().Capacity() / e.Mean.Seconds() }

// Asks is what a run asks for.
func (e RTT) Asks() farmrun.Asks { return farmrun.Asks{Rate: e.rate(), Mean: e.Mean, Punctual: true} }

func (e RTT) length() time.Duration {
	if e.Quick {
		return quickRTT
	}
	return e.For
}

func (e RTT) arrivals() []trace.Arrival {
	return trace.Poisson(e.Seed, int(e.rate()*e.length().Seconds()), e.rate(), e.Mean)
}

// Run makes a run each way at each round trip.
func (e RTT) Run(ctx context.Context, show func(farmrun.Step)) (*RTTReport, error) {
	farmrun.Prefer()
	r := &RTTReport{experiment: e}
	p := &farmrun.Pace{Began: time.Now(), Total: len(e.RTTs) * len(rttWays()), Guess: e.length() + 4*time.Second, Show: show}
	for _, rtt := range e.RTTs {
		if err := e.at(ctx, rtt, r, p); err != nil {
			return nil, err
		}
	}
	return r, nil
}

// at makes the runs at a round trip, on a bed of their own.
func (e RTT) at(ctx context.Context, rtt time.Duration, r *RTTReport, p *farmrun.Pace) (err error) {
	p.Begin(fmt.Sprintf("building a farm behind %v", rtt))
	arrivals := e.arrivals()
	clients := farmrun.ClientsFor(len(arrivals))
	bed, err := testbed.Up(ctx, testbed.Config{
		Servers: e.Servers, LBs: e.LBs, Clients: clients * farmrun.Tries * len(rttWays()), Delay: testbed.Delay{Mean: rtt / 2},
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, bed.Close()) }()
	fresh := bed.ClientAddrs
	for _, w := range rttWays() {
		var run *rttRun
		for range farmrun.Tries { // of other clients, apart from sockets in TIME_WAIT
			p.Begin(w.String(rtt))
			run = &rttRun{RTT: e, way: w, bed: bed, requests: farmrun.Requests(arrivals, fresh[:clients])}
			fresh = fresh[clients:]
			if err = run.run(ctx); !errors.Is(err, traffic.ErrLate) {
				break
			}
		}
		if err != nil {
			return fmt.Errorf("%s: %w", w.String(rtt), err)
		}
		r.add(rtt, run)
		p.End(w.String(rtt))
	}
	return nil
}

func (w rttWay) String(rtt time.Duration) string {
	if w.flooded {
		return fmt.Sprintf("%s under a flood, round trip %v", w.dispatch, rtt)
	}
	return fmt.Sprintf("%s, round trip %v", w.dispatch, rtt)
}
