package farm

import (
	"slices"
	"time"

	"proffer/schema"
)

// Limits of the times in a farm file.
const (
	longestHop     = 4 * time.Second
	longestService = time.Hour
	longestStretch = 366 * 24 * time.Hour
)

// table is the table of a farm file. It has no fallback for two keys: a name
// is that of the file, the number of requests that of the trace.
func table(f *File) []schema.Entry {
	hasIO := schema.When("stages: cpu-io or cpu-io-cpu", func() bool { return f.Stages != CPU })
	return []schema.Entry{
		schema.Optional("name", "", schema.Name().Into(&f.Name)),
		schema.Need("servers", schema.Sequence(&f.Groups, 1, 1024, group)),
		schema.Optional("lbs", "1", schema.Whole(1, 1024).Into(&f.LBs)),
		schema.Optional("hop", "{}", schema.Mapping([]schema.Entry{
			schema.Optional("least", "100us", schema.Within(0, longestHop).Into(&f.HopLeast)),
			schema.Optional("most", "1ms", schema.Within(0, longestHop).Into(&f.HopMost)),
		})),
		schema.Optional("client_rtt", "", schema.Mapping(times(&f.ClientRTT))),
		schema.Optional("flow_table", "0", schema.Whole(0, 1<<24).Into(&f.FlowTable)),
		schema.Optional("table", "0", schema.Whole(0, 1<<24).Into(&f.Table)),
		schema.Optional("choices", "2", schema.Whole(1, 4).Into(&f.Choices)),
		schema.Optional("refusal_penalty", "0s", schema.Within(0, longestService).Into(&f.Penalty)),
		schema.Optional("background", "", schema.Sequence(&f.Background, 1, 64, background)),
		schema.Optional("events", "", schema.Sequence(&f.Events, 1, 1024, event)),
		schema.Optional("antagonists", "", schema.Mapping(antagonists(&f.Antagonists))),
		schema.Optional("syn_flood", "", schema.Mapping([]schema.Entry{
			schema.Need("times", schema.Fraction(0.001, 1000).Into(&f.Flood.Times)),
			schema.Optional("expires", "10s", schema.Within(time.Millisecond, longestService).Into(&f.Flood.Expires)),
		})),
		schema.Need("service", schema.Mapping(times(&f.Service))),
		schema.Optional("stages", "cpu", schema.OneOf(CPU, CPUIO, CPUIOCPU).Into(&f.Stages)),
		hasIO.Need("io", schema.Mapping(times(&f.IO))),
		schema.Optional("arrivals", "{}", schema.Mapping(arrivals(&f.Arrivals))),
		schema.Optional("requests", "", schema.Whole(1, MaxRequests).Into(&f.Requests)),
		schema.Optional("counted", "{}", schema.Mapping([]schema.Entry{
			schema.Optional("from", "0", schema.Fraction(0, 1).Into(&f.CountFrom)),
			schema.Optional("to", "1", schema.Fraction(0, 1).Into(&f.CountTo)),
			schema.Optional("after", "0s", schema.Within(0, longestStretch).Into(&f.After)),
			schema.Optional("until", "", schema.Within(1, longestStretch).Into(&f.Until)),
		})),
	}
}

func group(g *Group) []schema.Entry {
	sharing := schema.When("discipline: sharing", func() bool { return g.Discipline == Sharing })
	return []schema.Entry{
		schema.Need("count", schema.Whole(1, MaxServers).Into(&g.Count)),
		schema.Need("cores", schema.Whole(1, 1024).Into(&g.Cores)),
		schema.Optional("speed", "1", schema.Fraction(0.001, 1000).Into(&g.Speed)),
		schema.Optional("discipline", "sharing", schema.OneOf(Sharing, FIFO).Into(&g.Discipline)),
		sharing.Optional("workers", "32", schema.Whole(1, 65535).Into(&g.Workers)),
		schema.Optional("backlog", "128", schema.Whole(0, MaxServers).Into(&g.Backlog)),
		schema.Optional("weight", "1", schema.Whole(1, 65535).Into(&g.Weight)),
		schema.Optional("threshold", "", schema.Whole(1, 65535).Into(&g.Threshold)),
	}
}

func background(b *Background) []schema.Entry {
	set := func(r span) { b.First, b.Last = r.first, r.last }
	return []schema.Entry{
		schema.Need("servers", serverNumbers().Set(set)),
		schema.Need("cores", schema.Fraction(0.001, 1024).Into(&b.Cores)),
		schema.Optional("from", "0s", schema.Within(0, longestStretch).Into(&b.From)),
		schema.Optional("to", "", schema.Within(1, longestStretch).Into(&b.To)),
	}
}

func antagonists(a *Antagonists) []schema.Entry {
	return []schema.Entry{
		schema.Optional("every", "10s", schema.Within(time.Millisecond, longestStretch).Into(&a.Every)),
		schema.Optional("idle", "0.5", schema.Fraction(0, 1).Into(&a.Idle)),
		schema.Optional("least", "0.2", schema.Fraction(0, 0.99).Into(&a.Least)),
		schema.Optional("most", "0.8", schema.Fraction(0, 0.99).Into(&a.Most)),
	}
}

func event(v *Event) []schema.Entry {
	servers := schema.When("kind: join, drain or fail", func() bool { return v.Kind != FailLB })
	lb := schema.When("kind: fail-lb", func() bool { return v.Kind == FailLB })
	set := func(r span) { v.First, v.Last = r.first, r.last }
	return []schema.Entry{
		schema.Need("at", schema.Within(0, longestStretch).Into(&v.At)),
		schema.Need("kind", schema.OneOf(Join, Drain, Fail, FailLB).Into(&v.Kind)),
		servers.Need("servers", serverNumbers().Set(set)),
		lb.Need("lb", schema.Whole(0, 1023).Into(&v.LB)),
	}
}

func times(t *Times) []schema.Entry {
	is := func(spelling string, families ...Family) *schema.Condition {
		return schema.When(spelling, func() bool { return slices.Contains(families, t.Family) })
	}
	drawn := is("a distribution other than bimodal, sampled and trace", Exponential, Lognormal, Deterministic, Hyperexponential, Pareto, Weibull)
	spread := is("distribution: lognormal or hyperexponential", Lognormal, Hyperexponential)
	shaped := is("distribution: pareto or weibull", Pareto, Weibull)
	bimodal := is("distribution: bimodal", Bimodal)
	filed := is("distribution: trace or sampled", Traced, Sampled)
	return []schema.Entry{
		schema.Need("distribution", schema.OneOf(Exponential, Lognormal, Deterministic, Hyperexponential, Pareto, Weibull, Bimodal, Sampled, Traced).Into(&t.Family)),
		drawn.Need("mean", schema.Within(1, longestService).Into(&t.Mean)),
		spread.Need("sd", schema.Within(1, 100*longestService).Into(&t.SD)),
		shaped.Need("shape", schema.Fraction(0.1, 100).Into(&t.Shape)),
		bimodal.Need("short", schema.Within(1, longestService).Into(&t.Short)),
		bimodal.Need("long", schema.Within(1, longestService).Into(&t.Long)),
		bimodal.Need("long_share", schema.Fraction(0, 1).Into(&t.LongShare)),
		filed.Need("file", traceFile().Into(&t.File)),
		filed.Optional("duration_factor", "1", schema.Fraction(0.001, 1000).Into(&t.Factor)),
	}
}

func arrivals(a *Arrivals) []schema.Entry {
	is := func(p Process) *schema.Condition {
		return schema.When("process: "+string(p), func() bool { return a.Process == p })
	}
	rated := schema.When("a process other than trace", func() bool { return a.Process != Recorded })
	return []schema.Entry{
		schema.Optional("process", "poisson", schema.OneOf(Poisson, Stepped, Diurnal, Recorded).Into(&a.Process)),
		rated.Optional("unit", "rho", schema.OneOf(Rho, PerSecond).Into(&a.Unit)),
		is(Poisson).Optional("rate", "", schema.Fraction(1e-6, 1e9).Into(&a.Rate)),
		is(Stepped).Need("steps", schema.Sequence(&a.Steps, 1, 1024, step)),
		is(Diurnal).Need("low", schema.Fraction(0, 1e9).Into(&a.Low)),
		is(Diurnal).Need("high", schema.Fraction(1e-6, 1e9).Into(&a.High)),
		is(Diurnal).Need("period", schema.Within(time.Second, longestStretch).Into(&a.Period)),
		is(Recorded).Need("file", traceFile().Into(&a.File)),
		is(Recorded).Optional("rate_factor", "1", schema.Fraction(0.001, 1000).Into(&a.Factor)),
	}
}

func step(s *Step) []schema.Entry {
	return []schema.Entry{
		schema.Optional("lasting", "", schema.Within(time.Millisecond, longestStretch).Into(&s.Lasting)),
		schema.Need("rate", schema.Fraction(0, 1e9).Into(&s.Rate)),
	}
}
