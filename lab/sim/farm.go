package sim

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Farm is the farm of a run: servers behind load balancers behind an edge
// router that gives every flow to one of them, at random.
type Farm struct {
	Name    string
	Servers []Server
	LBs     int // each sees its own flows only

	// One hop takes uniformly from HopMin to HopMax. The client's round trip
	// comes on top: half of it on every hop to or from a client.
	HopMin, HopMax time.Duration
	ClientRTT      Distribution // the zero value: the client is a hop away

	FlowTable  int           // lsq, sed, learned: buckets of an LB's flow table, one flow each; 0: never full (HLB Figure 19)
	Penalty    time.Duration // added to the client's time by a refusal; 0: refusals are counted apart
	Background []Background
	Events     []Event // in any order

	Antagonists Antagonists
	Flood       Flood

	Table   int      // buckets of the consistent-hash table (6LB) that gives the lists of servers; 0: drawn without one
	Choices int      // hunt: servers in a list; 0: 2
	Default Workload // filled in by Load
}

// Server is a machine. Up to Workers requests are in hand at once and up to
// Backlog more are accepted; a request that comes then is refused.
type Server struct {
	Cores      int
	Speed      float64 // work a core does in a second, in seconds of service; 0 means 1
	Discipline Discipline
	Workers    int // Sharing only; a FIFO server has as many requests in hand as cores
	Backlog    int

	Weight    int // how often a flow's hash leads to the server, beside the others'; 0 means 1
	Threshold int // hunt:static: the server's own C; 0: the policy's
	Group     int // of servers that are reported together
}

// Discipline is how the cores are given to the requests in hand.
type Discipline uint8

const (
	Sharing Discipline = iota // n requests run at min(1, cores/n) each
	FIFO                      // at most cores requests run, in order of arrival
)

func (d Discipline) String() string { return [...]string{"sharing", "fifo"}[d] }

// Background takes Cores cores' worth of work from each named server while it
// lasts: the rest, a hundredth at least, is shared by all its cores (HLB
// Figure 23).
type Background struct {
	Servers  []int
	From, To time.Duration // To 0: until the end
	Cores    float64
}

// InHand is how many requests make progress at once, room how many are accepted.
func (s Server) InHand() int {
	if s.Discipline == FIFO {
		return s.Cores
	}
	return s.Workers
}

func (s Server) Room() int { return s.InHand() + s.Backlog }

// Power is the work the server does in a second, in seconds of service.
func (s Server) Power() float64 { return float64(float64(s.Cores) * s.Pace()) }

func (s Server) weight() int { return max(1, s.Weight) }

func (s Server) Pace() float64 {
	if s.Speed == 0 {
		return 1
	}
	return s.Speed
}

// QueueFactor is how much longer than its service the last of n requests takes.
func (s Server) QueueFactor(n float64) float64 {
	k := float64(s.Cores)
	if s.Discipline == FIFO {
		return 1 + max(0, n-k)/k
	}
	return max(1, n/k)
}

// FarmA is the farm of 6LB §VI: 48 servers of two cores and 32 workers behind
// two LBs, exponential service of mean 190 ms.
func FarmA() Farm {
	f := Farm{Name: "A", LBs: 2, HopMin: HopMin, HopMax: HopMax}
	for range 48 {
		f.Servers = append(f.Servers, Server{Cores: 2, Discipline: Sharing, Workers: 32, Backlog: 128})
	}
	f.Default = Workload{Requests: 80_000, Service: Exponential(190 * time.Millisecond)}
	return f
}

// FarmB is the farm of HLB §VI-A3: 128 FIFO servers behind four LBs, exponential
// service of mean 500 ms, the middle half of the requests counting. kind is
// the difference of the second half of the servers from the first, which have one
// core of speed 1: "hom" not at all, "c1:K" by K cores, "v1:K" by speed K.
func FarmB(kind string) (Farm, error) {
	other := Server{Cores: 1, Speed: 1, Discipline: FIFO, Backlog: 64}
	first := other
	number, isCores := strings.CutPrefix(kind, "c1:")
	if !isCores {
		number, _ = strings.CutPrefix(kind, "v1:")
	}
	k, err := strconv.Atoi(number)
	switch {
	case kind == "hom":
	case number == kind || err != nil || k < 1 || k > 1024:
		return Farm{}, fmt.Errorf("farm B of kind %q: want hom, c1:K or v1:K with K from 1 to 1024", kind)
	case isCores:
		other.Cores = k
	default:
		other.Speed = float64(k)
	}
	f := Farm{Name: "B " + kind, LBs: 4, HopMin: HopMin, HopMax: HopMax, Penalty: 40 * time.Second}
	for i := range 128 {
		if i < 64 {
			f.Servers = append(f.Servers, first)
		} else {
			other.Group = 1
			f.Servers = append(f.Servers, other)
		}
	}
	f.Default = Workload{Requests: 80_000, Service: Exponential(500 * time.Millisecond), From: 0.25, To: 0.75}
	return f, nil
}

const (
	HopMin = 100 * time.Microsecond
	HopMax = time.Millisecond
)

// Utilisation is the share of the farm that the workload uses on average; from 1
// on queues only grow, and the times of a run say how long it was.
func (f Farm) Utilisation(w Workload) float64 {
	return w.Arrivals.MeanRate() / f.Capacity(w)
}

// Load is the farm's default workload as a Poisson stream that uses the share
// rho of it.
func (f Farm) Load(rho float64) Workload {
	w := f.Default
	w.Arrivals = Poisson(rho * f.Capacity(w))
	return w
}

// Capacity is how many requests a second the farm could serve at best if they
// were spread ideally and antagonists took their mean share: where the first of its two resources, cores and disks,
// is busy all the time. That is utilisation 1 here, also for
// requests of several stages.
func (f Farm) Capacity(w Workload) float64 {
	power := 0.0
	for _, s := range f.Servers {
		power += s.Power()
	}
	power *= 1 - f.Antagonists.mean()
	cores := power / w.Service.Mean.Seconds()
	if !w.HasIO() {
		return cores
	}
	return min(cores, float64(len(f.Servers))/w.IO.Mean.Seconds())
}
