package sim

import (
	"fmt"
	"math"
	"slices"
	"time"

	"proffer/table"
	"proffer/topo"
)

// check returns an error for a farm, policy or workload that cannot run.
func check(f Farm, p Policy, w Workload) error {
	for _, problem := range []string{checkFarm(f), checkWorkload(w), checkPolicy(f, p)} {
		if problem != "" {
			return fmt.Errorf("simulate farm %q: %s", f.Name, problem)
		}
	}
	return nil
}

// rule is a flaw, in the words of the error.
type rule struct {
	broken bool
	text   string
}

func first(rules ...rule) string {
	for _, r := range rules {
		if r.broken {
			return r.text
		}
	}
	return ""
}

// Shapes of Pareto and Weibull. Nearer to 1, Pareto's mean comes from times that
// no run meets.
const (
	LeastPareto  = 1.1
	LeastWeibull = 0.1
	MostShape    = 100.0
)

const (
	maxServers    = 1 << 24
	maxPacketRate = 1e6
	mostFlood     = 1000.0
)

func checkFarm(f Farm) string {
	n := len(f.Servers)
	if problem := first(
		rule{n == 0, "no servers"},
		rule{n > maxServers, fmt.Sprintf("%d servers: want %d at most", n, maxServers)},
		rule{f.LBs < 1, fmt.Sprintf("%d LBs: want 1 or more", f.LBs)},
		rule{f.HopMin < 0 || f.HopMax < f.HopMin, fmt.Sprintf("a hop takes from %v to %v: want 0 ≤ from ≤ to", f.HopMin, f.HopMax)},
		rule{f.HopMax-f.HopMin > math.MaxUint32, fmt.Sprintf("a hop takes from %v to %v: want %v between them at most", f.HopMin, f.HopMax, time.Duration(math.MaxUint32))},
		rule{f.Table < 0 || f.Table > table.MaxBuckets, fmt.Sprintf("a table of %d buckets: want 0 to %d", f.Table, table.MaxBuckets)},
		rule{f.Table > 0 && n > table.MaxServers, fmt.Sprintf("a table of %d servers: want %d at most", n, table.MaxServers)},
		rule{f.Choices < 0 || f.Choices > topo.MaxChoices, fmt.Sprintf("%d choices: want 1 to %d", f.Choices, topo.MaxChoices)},
		rule{f.FlowTable < 0, fmt.Sprintf("a flow table of %d buckets", f.FlowTable)},
		rule{f.Penalty < 0, fmt.Sprintf("a penalty of %v", f.Penalty)},
		rule{checkTimes(f.ClientRTT) != "", "client RTT: " + checkTimes(f.ClientRTT)},
		rule{checkAntagonists(f.Antagonists) != "", "antagonists: " + checkAntagonists(f.Antagonists)},
		rule{!(f.Flood.Times >= 0 && f.Flood.Times <= mostFlood), fmt.Sprintf("%v forged SYNs a request: want 0 to %v", f.Flood.Times, mostFlood)},
		rule{f.Flood.Times > 0 && f.Flood.Expires <= 0, fmt.Sprintf("a forged SYN is forgotten after %v: want more than 0", f.Flood.Expires)},
	); problem != "" {
		return problem
	}
	for i, s := range f.Servers {
		if problem := checkServer(s); problem != "" {
			return fmt.Sprintf("server %d: %s", i, problem)
		}
	}
	if problem := checkEvents(f); problem != "" {
		return problem
	}
	for i, b := range f.Background {
		if problem := checkBackground(b, n); problem != "" {
			return fmt.Sprintf("background work %d: %s", i, problem)
		}
	}
	return ""
}

func checkServer(s Server) string {
	return first(
		rule{s.Cores < 1, fmt.Sprintf("%d cores: want 1 or more", s.Cores)},
		rule{!(s.Speed >= 0) || math.IsInf(s.Speed, 1), fmt.Sprintf("speed %v: want more than 0", s.Speed)},
		rule{s.Discipline > FIFO, fmt.Sprintf("unknown discipline %d", s.Discipline)},
		rule{s.Discipline == Sharing && s.Workers < 1, fmt.Sprintf("%d workers: want 1 or more", s.Workers)},
		rule{s.Weight < 0 || s.Weight > math.MaxUint16, fmt.Sprintf("weight %d: want 0 to %d", s.Weight, math.MaxUint16)},
		rule{s.Threshold < 0, fmt.Sprintf("threshold %d", s.Threshold)},
		rule{s.Backlog < 0, fmt.Sprintf("a backlog of %d", s.Backlog)},
	)
}

func checkBackground(b Background, servers int) string {
	return first(
		rule{!(b.Cores >= 0), fmt.Sprintf("%v cores: want 0 or more", b.Cores)},
		rule{b.From < 0 || b.To < 0 || b.To > 0 && b.To < b.From, fmt.Sprintf("from %v to %v: want 0 ≤ from ≤ to", b.From, b.To)},
		rule{slices.ContainsFunc(b.Servers, func(s int) bool { return s < 0 || s >= servers }),
			fmt.Sprintf("servers %v: want 0 to %d", b.Servers, servers-1)},
	)
}

func checkWorkload(w Workload) string {
	return first(
		rule{w.Requests < 1 || w.Requests > math.MaxInt32, fmt.Sprintf("%d requests: want 1 to %d", w.Requests, math.MaxInt32)},
		rule{w.Stages < 0 || w.Stages > 3, fmt.Sprintf("%d stages: want 1 to 3", w.Stages)},
		rule{!(w.From >= 0 && w.From <= w.To && w.To <= 1), fmt.Sprintf("requests from %v to %v count: want 0 ≤ from ≤ to ≤ 1", w.From, w.To)},
		rule{w.After < 0 || w.Until < 0 || w.Until > 0 && w.Until <= w.After,
			fmt.Sprintf("requests from %v to %v count: want 0 ≤ from < to", w.After, w.Until)},
		rule{!(w.PacketRate >= 0 && w.PacketRate <= maxPacketRate), fmt.Sprintf("%v data packets a second: want 0 to %v", w.PacketRate, maxPacketRate)},
		rule{w.ProbeEvery < 0, fmt.Sprintf("a probe every %v", w.ProbeEvery)},
		rule{w.Service.None(), "no service time"},
		rule{checkTimes(w.Service) != "", "service time: " + checkTimes(w.Service)},
		rule{w.HasIO() && w.IO.None(), "requests use the disk, and no disk time is given"},
		rule{checkTimes(w.IO) != "", "disk time: " + checkTimes(w.IO)},
		rule{checkArrivals(w.Arrivals) != "", "arrivals: " + checkArrivals(w.Arrivals)},
	)
}

func checkTimes(d Distribution) string {
	negative := slices.IndexFunc(d.List, func(x time.Duration) bool { return x < 0 })
	return first(
		rule{d.Kind > SampledKind, fmt.Sprintf("unknown kind %d", d.Kind)},
		rule{negative >= 0, fmt.Sprintf("number %d of the list is negative", negative)},
		rule{d.Mean < 0 || d.SD < 0, fmt.Sprintf("mean %v, deviation %v: want 0 or more", d.Mean, d.SD)},
		rule{d.Kind == HyperexponentialKind && d.SD < d.Mean,
			fmt.Sprintf("hyperexponential of mean %v and deviation %v: want a deviation of the mean or more", d.Mean, d.SD)},
		rule{d.Kind == ParetoKind && !(d.Shape >= LeastPareto && d.Shape <= MostShape),
			fmt.Sprintf("pareto of shape %v: want %v to %v", d.Shape, LeastPareto, MostShape)},
		rule{d.Kind == WeibullKind && !(d.Shape >= LeastWeibull && d.Shape <= MostShape),
			fmt.Sprintf("weibull of shape %v: want %v to %v", d.Shape, LeastWeibull, MostShape)},
		rule{d.Kind == BimodalKind && !(d.Short >= 0 && d.Short <= d.Long && d.LongShare >= 0 && d.LongShare <= 1),
			fmt.Sprintf("bimodal of %v and %v, a share of %v long: want 0 ≤ short ≤ long and a share from 0 to 1", d.Short, d.Long, d.LongShare)},
		rule{(d.Kind == ListedKind || d.Kind == SampledKind) && len(d.List) == 0, "an empty list"},
	)
}

func checkArrivals(a Arrivals) string {
	if a.list != nil {
		return first(
			rule{len(a.list) == 0 || a.list[0] < 0, "want instants from 0 on"},
			rule{!slices.IsSorted(a.list), "the instants do not ascend"},
		)
	}
	if len(a.steps) == 0 {
		return "none: use Poisson, Stepped, Diurnal or At"
	}
	any := false
	for i, s := range a.steps {
		last := i == len(a.steps)-1 && !a.repeat
		if !(s.PerSecond >= 0) || math.IsInf(s.PerSecond, 1) || s.Lasting < 0 || !last && s.Lasting == 0 {
			return fmt.Sprintf("step %d: %v a second for %v", i, s.PerSecond, s.Lasting)
		}
		any = any || s.PerSecond > 0
		if last && s.PerSecond == 0 {
			return "the last step has no arrivals, so the run would never end"
		}
	}
	if !any {
		return "a rate of 0 throughout"
	}
	return ""
}

func checkPolicy(f Farm, p Policy) string {
	return first(
		rule{p.Base == "", "no policy: use ParsePolicy"},
		rule{p.Every < 0, fmt.Sprintf("policy %s updates its weights every %v", p.Name, p.Every)},
		rule{p.Choices > len(f.Servers), fmt.Sprintf("policy %s offers to %d servers, there are %d", p.Name, p.Choices, len(f.Servers))},
		rule{f.Table > 0 && p.Choices > table.MaxChoices, fmt.Sprintf("policy %s offers to %d servers, a list of the table has %d", p.Name, p.Choices, table.MaxChoices)},
		rule{p.TwoChoices && len(f.Servers) < 2, fmt.Sprintf("policy %s chooses between 2 servers, there is 1", p.Name)},
	)
}
