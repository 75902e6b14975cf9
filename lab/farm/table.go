package farm

import (
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
	hasIO := schema.When("stages", string(CPUIO), string(CPUIOCPU))
	return []schema.Entry{
		schema.Optional("name", "", schema.Name().Into(&f.Name), "Name in tables and rows; that of the file when absent."),
		schema.Need("servers", schema.Sequence(&f.Groups, 1, 1024, group), "Groups of alike servers, numbered from 0 in this order; at most 1000000 servers."),
		schema.Optional("lbs", "1", schema.Whole(1, 1024).Into(&f.LBs), "Load balancers; each sees its own flows only."),
		schema.Optional("hop", "{}", schema.Mapping([]schema.Entry{
			schema.Optional("least", "100us", schema.Within(0, longestHop).Into(&f.HopLeast), "Shortest."),
			schema.Optional("most", "1ms", schema.Within(0, longestHop).Into(&f.HopMost), "Longest."),
		}), "How long one hop takes, uniformly from least to most."),
		schema.Optional("client_rtt", "", schema.Mapping(times(&f.ClientRTT)), "The client's round trip, on top of the hops; none when absent."),
		schema.Optional("flow_table", "0", schema.Whole(0, 1<<24).Into(&f.FlowTable), "Buckets of an LB's flow table, one flow each; a flow that finds its bucket taken is spread by hash alone. 0: never full."),
		schema.Optional("table", "0", schema.Whole(0, 1<<24).Into(&f.Table), "Buckets of the consistent-hash table (6LB) that gives the lists of servers; 0: lists are drawn without a table."),
		schema.Optional("choices", "2", schema.Whole(1, 4).Into(&f.Choices), "Servers in a list of hunt."),
		schema.Optional("refusal_penalty", "0s", schema.Within(0, longestService).Into(&f.Penalty), "What a refusal adds to the client's time; 0s: refusals are counted apart."),
		schema.Optional("background", "", schema.Sequence(&f.Background, 1, 64, background), "Work that takes cores of some servers."),
		schema.Optional("events", "", schema.Sequence(&f.Events, 1, 1024, event), "Servers and LBs that come and go."),
		schema.Optional("antagonists", "", schema.Mapping(antagonists(&f.Antagonists)), "Other work on every server, which takes a share of its speed that is drawn again and again; none when absent."),
		schema.Optional("syn_flood", "", schema.Mapping([]schema.Entry{
			schema.Need("times", schema.Fraction(0.001, 1000).Into(&f.Flood.Times), "How many come for each request, on average."),
			schema.Optional("expires", "10s", schema.Within(time.Millisecond, longestService).Into(&f.Flood.Expires), "How long an LB keeps an entry for one."),
		}), "SYNs with forged sources, which never come to life; none when absent."),
		schema.Need("service", schema.Mapping(times(&f.Service)), "What a request needs of one core of speed 1, all CPU stages together."),
		schema.Optional("stages", "cpu", schema.OneOf(CPU, CPUIO, CPUIOCPU).Into(&f.Stages), "What a request passes: cores, and the one disk of its server, which all there share."),
		hasIO.Need("io", schema.Mapping(times(&f.IO)), "What a request needs of the disk."),
		schema.Optional("arrivals", "{}", schema.Mapping(arrivals(&f.Arrivals)), "When requests come."),
		schema.Optional("requests", "", schema.Whole(1, MaxRequests).Into(&f.Requests), "Requests of a run; 80000 when absent, or as many as the trace of arrivals has. --requests overrides it."),
		schema.Optional("counted", "{}", schema.Mapping([]schema.Entry{
			schema.Optional("from", "0", schema.Fraction(0, 1).Into(&f.CountFrom), "Where it begins."),
			schema.Optional("to", "1", schema.Fraction(0, 1).Into(&f.CountTo), "Where it ends, above from."),
			schema.Optional("after", "0s", schema.Within(0, longestStretch).Into(&f.After), "Of these, only requests that come so long after the start."),
			schema.Optional("until", "", schema.Within(1, longestStretch).Into(&f.Until), "And before this instant, above after; to the end when absent."),
		}), "The share of the requests that counts, by order of arrival, and the times in which they come."),
	}
}

func group(g *Group) []schema.Entry {
	sharing := schema.When("discipline", string(Sharing))
	return []schema.Entry{
		schema.Need("count", schema.Whole(1, MaxServers).Into(&g.Count), "How many."),
		schema.Need("cores", schema.Whole(1, 1024).Into(&g.Cores), "Cores of each."),
		schema.Optional("speed", "1", schema.Fraction(0.001, 1000).Into(&g.Speed), "Work that a core does in a second, in seconds of service."),
		schema.Optional("discipline", "sharing", schema.OneOf(Sharing, FIFO).Into(&g.Discipline), "sharing: all requests in hand share the cores. fifo: as many run as there are cores, in order of arrival."),
		sharing.Optional("workers", "32", schema.Whole(1, 65535).Into(&g.Workers), "Requests in hand at once, at least as many as cores."),
		schema.Optional("backlog", "128", schema.Whole(0, MaxServers).Into(&g.Backlog), "Requests that are accepted beyond those in hand; who comes then is refused."),
		schema.Optional("weight", "1", schema.Whole(1, 65535).Into(&g.Weight), "How often a list of servers has one of the group, beside the others' weights."),
		schema.Optional("threshold", "", schema.Whole(1, 65535).Into(&g.Threshold), "The group's own C for hunt:static; the policy's when absent."),
	}
}

func background(b *Background) []schema.Entry {
	set, get := func(r span) { b.First, b.Last = r.first, r.last }, func() span { return span{b.First, b.Last} }
	return []schema.Entry{
		schema.Need("servers", serverNumbers().Set(set, get), "The number of a server, or of several such as 0-9."),
		schema.Need("cores", schema.Fraction(0.001, 1024).Into(&b.Cores), "Cores' worth of work that each server loses."),
		schema.Optional("from", "0s", schema.Within(0, longestStretch).Into(&b.From), "When it begins."),
		schema.Optional("to", "", schema.Within(1, longestStretch).Into(&b.To), "When it ends; never when absent."),
	}
}

func antagonists(a *Antagonists) []schema.Entry {
	return []schema.Entry{
		schema.Optional("every", "10s", schema.Within(time.Millisecond, longestStretch).Into(&a.Every), "Mean of the exponential time between two draws."),
		schema.Optional("idle", "0.5", schema.Fraction(0, 1).Into(&a.Idle), "Probability of a share of 0."),
		schema.Optional("least", "0.2", schema.Fraction(0, 0.99).Into(&a.Least), "Else the share is uniform, from least"),
		schema.Optional("most", "0.8", schema.Fraction(0, 0.99).Into(&a.Most), "to most."),
	}
}

func event(v *Event) []schema.Entry {
	servers := schema.When("kind", string(Join), string(Drain), string(Fail)).Spelt("kind: join, drain or fail")
	lb := schema.When("kind", string(FailLB))
	set, get := func(r span) { v.First, v.Last = r.first, r.last }, func() span { return span{v.First, v.Last} }
	return []schema.Entry{
		schema.Need("at", schema.Within(0, longestStretch).Into(&v.At), "When it happens."),
		schema.Need("kind", schema.OneOf(Join, Drain, Fail, FailLB).Into(&v.Kind), "join: the servers take flows from now on. drain: they get no new flow. fail: their connections are lost. fail-lb: the LB stops and its state is lost."),
		servers.Need("servers", serverNumbers().Set(set, get), "The number of a server, or of several such as 0-9."),
		lb.Need("lb", schema.Whole(0, 1023).Into(&v.LB), "The number of an LB, from 0."),
	}
}

func times(t *Times) []schema.Entry {
	is := func(families ...Family) *schema.Condition { return schema.When("distribution", names(families)...) }
	drawn := is(Exponential, Lognormal, Deterministic, Hyperexponential, Pareto, Weibull).Spelt("a distribution other than bimodal, sampled and trace")
	spread, shaped, bimodal, filed := is(Lognormal, Hyperexponential), is(Pareto, Weibull), is(Bimodal), is(Traced, Sampled)
	return []schema.Entry{
		schema.Need("distribution", schema.OneOf(Exponential, Lognormal, Deterministic, Hyperexponential, Pareto, Weibull, Bimodal, Sampled, Traced).Into(&t.Family), "trace: column service_s of a trace file, in order and again from its start. sampled: the same column, each time drawn at random."),
		drawn.Need("mean", schema.Within(1, longestService).Into(&t.Mean), "Mean."),
		spread.Need("sd", schema.Within(1, 100*longestService).Into(&t.SD), "Standard deviation."),
		shaped.Need("shape", schema.Fraction(0.1, 100).Into(&t.Shape), "How fast the tail falls: x^-shape (pareto, at least 1.1) or exp(-x^shape) (weibull)."),
		bimodal.Need("short", schema.Within(1, longestService).Into(&t.Short), "The shorter of two times."),
		bimodal.Need("long", schema.Within(1, longestService).Into(&t.Long), "The longer of two times."),
		bimodal.Need("long_share", schema.Fraction(0, 1).Into(&t.LongShare), "The share of the times that are long."),
		filed.Need("file", traceFile().Into(&t.File), "Trace file with a column service_s."),
		filed.Optional("duration_factor", "1", schema.Fraction(0.001, 1000).Into(&t.Factor), "What the file's times are multiplied by."),
	}
}

func arrivals(a *Arrivals) []schema.Entry {
	is := func(p ...Process) *schema.Condition { return schema.When("process", names(p)...) }
	rated := is(Poisson, Stepped, Diurnal).Spelt("a process other than trace")
	return []schema.Entry{
		schema.Optional("process", "poisson", schema.OneOf(Poisson, Stepped, Diurnal, Recorded).Into(&a.Process), "poisson: at one rate. stepped: at a rate that changes. diurnal: at a rate that rises and falls. trace: as recorded."),
		rated.Optional("unit", "rho", schema.OneOf(Rho, PerSecond).Into(&a.Unit), "Unit of the rates. rho: share of what the farm can serve. per_second: requests."),
		is(Poisson).Optional("rate", "", schema.Fraction(1e-6, 1e9).Into(&a.Rate), "Rate of process: poisson; --rho overrides it."),
		is(Stepped).Need("steps", schema.Sequence(&a.Steps, 1, 1024, step), "The rates of process: stepped, one after the other."),
		is(Diurnal).Need("low", schema.Fraction(0, 1e9).Into(&a.Low), "Least rate of process: diurnal."),
		is(Diurnal).Need("high", schema.Fraction(1e-6, 1e9).Into(&a.High), "Greatest rate of process: diurnal."),
		is(Diurnal).Need("period", schema.Within(time.Second, longestStretch).Into(&a.Period), "Period of process: diurnal."),
		is(Recorded).Need("file", traceFile().Into(&a.File), "Trace file with a column arrival_s, of process: trace."),
		is(Recorded).Optional("rate_factor", "1", schema.Fraction(0.001, 1000).Into(&a.Factor), "How many times as fast as recorded requests come."),
	}
}

func step(s *Step) []schema.Entry {
	return []schema.Entry{
		schema.Optional("lasting", "", schema.Within(time.Millisecond, longestStretch).Into(&s.Lasting), "How long; the last step, and only that, goes on for ever."),
		schema.Need("rate", schema.Fraction(0, 1e9).Into(&s.Rate), "Rate of arrivals."),
	}
}

func names[T ~string](values []T) (names []string) {
	for _, v := range values {
		names = append(names, string(v))
	}
	return names
}
