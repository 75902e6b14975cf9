package config

import (
	"slices"
	"time"
)

// Farm is a farm to simulate and the requests that come to it. Nothing of it is
// on any wire, so it is a noun of its file alone and not one of topo.
type Farm struct {
	Name               string
	Groups             []Group
	LBs                int
	HopLeast, HopMost  time.Duration // one way over one link
	ClientRTT          Times         // on top of the hops; zero: none
	FlowTable          int           // buckets of an LB's; 0: never full
	Table              int           // buckets of the table that gives the lists; 0: none
	Choices            int           // of hunt: servers in a list
	Penalty            time.Duration // added to a refused request; 0: refusals are counted apart
	Background         []Background
	Events             []FarmEvent
	Service            Times
	Stages             Stages
	IO                 Times // of the disk; only when Stages have one
	Arrivals           Arrivals
	Requests           int // 0: not stated
	CountFrom, CountTo float64

	doc *document // positions of the keys
}

// Group is servers that are alike.
type Group struct {
	Count, Cores     int
	Speed            float64
	Discipline       Discipline
	Workers, Backlog int
	Weight           int
	Threshold        int // of hunt:static; 0: the policy's
}

// Background takes Cores of every server from First to Last. To 0: for ever.
type Background struct {
	First, Last int
	From, To    time.Duration
	Cores       float64
}

// FarmEvent happens to the servers from First to Last, or to the LB.
type FarmEvent struct {
	At          time.Duration
	Kind        EventKind
	First, Last int
	LB          int
}

// Times is a distribution of times. The zero value is none.
type Times struct {
	Family      Family
	Mean, SD    time.Duration
	Shape       float64 // Pareto, Weibull
	Short, Long time.Duration
	LongShare   float64 // Bimodal: of the times that are Long
	File        string  // Traced, Sampled: as the file has it
	Factor      float64 // Traced, Sampled: of the file's times
}

// Arrivals say when requests come.
type Arrivals struct {
	Process   Process
	Unit      Unit
	Rate      float64 // Poisson; 0: not stated
	Steps     []Step
	Low, High float64
	Period    time.Duration
	File      string
	Factor    float64 // Recorded: of the file's rate
}

// Step is a stretch of time with one rate. Lasting 0: for ever.
type Step struct {
	Lasting time.Duration
	Rate    float64
}

// The words of a farm file.
type (
	Discipline string
	EventKind  string
	Family     string
	Process    string
	Unit       string
	Stages     string
)

const (
	Sharing Discipline = "sharing"
	FIFO    Discipline = "fifo"

	Join   EventKind = "join"
	Drain  EventKind = "drain"
	Fail   EventKind = "fail"
	FailLB EventKind = "fail-lb"

	Exponential      Family = "exponential"
	Lognormal        Family = "lognormal"
	Deterministic    Family = "deterministic"
	Hyperexponential Family = "hyperexponential"
	Pareto           Family = "pareto"
	Weibull          Family = "weibull"
	Bimodal          Family = "bimodal"
	Sampled          Family = "sampled"
	Traced           Family = "trace"

	Poisson  Process = "poisson"
	Stepped  Process = "stepped"
	Diurnal  Process = "diurnal"
	Recorded Process = "trace"

	Rho       Unit = "rho"
	PerSecond Unit = "per_second"

	CPU      Stages = "cpu"
	CPUIO    Stages = "cpu-io"
	CPUIOCPU Stages = "cpu-io-cpu"
)

func (d Discipline) String() string { return string(d) }
func (k EventKind) String() string  { return string(k) }
func (f Family) String() string     { return string(f) }
func (p Process) String() string    { return string(p) }
func (u Unit) String() string       { return string(u) }
func (s Stages) String() string     { return string(s) }

// Limits of one farm.
const (
	MaxFarm     = 1_000_000 // servers
	MaxRequests = 100_000_000

	longestHop     = 4 * time.Second
	longestService = time.Hour
	longestStretch = 366 * 24 * time.Hour
)

// ParseFarm reads the description of a farm to simulate. Errors are as of
// ParseLB. The trace files that it names are not opened.
func ParseFarm(file string, data []byte) (*Farm, error) {
	farm := &Farm{doc: newDocument(file)}
	farm.doc.parse(data, farmFile(farm))
	if farm.doc.ok() {
		nameFarm(farm)
		checkFarm(farm.doc, farm)
	}
	if err := farm.doc.err(); err != nil {
		return nil, err
	}
	return farm, nil
}

// Mistake is an error at a key, such as "arrivals.file", for mistakes that only show when
// the farm is to be run.
func (f *Farm) Mistake(key, problem string) *Error {
	at := f.doc.locate(key)
	return &Error{f.doc.file, at.line, at.column, key, problem}
}

// farmFile is the table of a farm file. It has no fallback for two keys: a name
// is that of the file, the number of requests that of the trace.
func farmFile(f *Farm) []entry {
	hasIO := &condition{"stages: cpu-io or cpu-io-cpu", func() bool { return f.Stages != CPU }}
	return []entry{
		optional("name", "", scalar(&f.Name, name())),
		need("servers", sequence(&f.Groups, 1, 1024, group)),
		optional("lbs", "1", scalar(&f.LBs, whole(1, 1024))),
		optional("hop", "{}", mapping([]entry{
			optional("least", "100us", scalar(&f.HopLeast, within(0, longestHop))),
			optional("most", "1ms", scalar(&f.HopMost, within(0, longestHop))),
		})),
		optional("client_rtt", "", mapping(times(&f.ClientRTT))),
		optional("flow_table", "0", scalar(&f.FlowTable, whole(0, 1<<24))),
		optional("table", "0", scalar(&f.Table, whole(0, 1<<24))),
		optional("choices", "2", scalar(&f.Choices, whole(1, 4))),
		optional("refusal_penalty", "0s", scalar(&f.Penalty, within(0, longestService))),
		optional("background", "", sequence(&f.Background, 1, 64, background)),
		optional("events", "", sequence(&f.Events, 1, 1024, farmEvent)),
		need("service", mapping(times(&f.Service))),
		optional("stages", "cpu", scalar(&f.Stages, oneOf(CPU, CPUIO, CPUIOCPU))),
		hasIO.need("io", mapping(times(&f.IO))),
		optional("arrivals", "{}", mapping(arrivals(&f.Arrivals))),
		optional("requests", "", scalar(&f.Requests, whole(1, MaxRequests))),
		optional("counted", "{}", mapping([]entry{
			optional("from", "0", scalar(&f.CountFrom, fraction(0, 1))),
			optional("to", "1", scalar(&f.CountTo, fraction(0, 1))),
		})),
	}
}

func group(g *Group) []entry {
	sharing := &condition{"discipline: sharing", func() bool { return g.Discipline == Sharing }}
	return []entry{
		need("count", scalar(&g.Count, whole(1, MaxFarm))),
		need("cores", scalar(&g.Cores, whole(1, 1024))),
		optional("speed", "1", scalar(&g.Speed, fraction(0.001, 1000))),
		optional("discipline", "sharing", scalar(&g.Discipline, oneOf(Sharing, FIFO))),
		sharing.optional("workers", "32", scalar(&g.Workers, whole(1, 65535))),
		optional("backlog", "128", scalar(&g.Backlog, whole(0, MaxFarm))),
		optional("weight", "1", scalar(&g.Weight, whole(1, 65535))),
		optional("threshold", "", scalar(&g.Threshold, whole(1, 65535))),
	}
}

func background(b *Background) []entry {
	set := func(r span) { b.First, b.Last = r.first, r.last }
	return []entry{
		need("servers", assign(serverNumbers(), set)),
		need("cores", scalar(&b.Cores, fraction(0.001, 1024))),
		optional("from", "0s", scalar(&b.From, within(0, longestStretch))),
		optional("to", "", scalar(&b.To, within(1, longestStretch))),
	}
}

func farmEvent(v *FarmEvent) []entry {
	servers := &condition{"kind: join, drain or fail", func() bool { return v.Kind != FailLB }}
	lb := &condition{"kind: fail-lb", func() bool { return v.Kind == FailLB }}
	set := func(r span) { v.First, v.Last = r.first, r.last }
	return []entry{
		need("at", scalar(&v.At, within(0, longestStretch))),
		need("kind", scalar(&v.Kind, oneOf(Join, Drain, Fail, FailLB))),
		servers.need("servers", assign(serverNumbers(), set)),
		lb.need("lb", scalar(&v.LB, whole(0, 1023))),
	}
}

func times(t *Times) []entry {
	is := func(spelling string, families ...Family) *condition {
		return &condition{spelling, func() bool { return slices.Contains(families, t.Family) }}
	}
	drawn := is("a distribution other than bimodal, sampled and trace", Exponential, Lognormal, Deterministic, Hyperexponential, Pareto, Weibull)
	spread := is("distribution: lognormal or hyperexponential", Lognormal, Hyperexponential)
	shaped := is("distribution: pareto or weibull", Pareto, Weibull)
	bimodal := is("distribution: bimodal", Bimodal)
	filed := is("distribution: trace or sampled", Traced, Sampled)
	return []entry{
		need("distribution", scalar(&t.Family, oneOf(Exponential, Lognormal, Deterministic, Hyperexponential, Pareto, Weibull, Bimodal, Sampled, Traced))),
		drawn.need("mean", scalar(&t.Mean, within(1, longestService))),
		spread.need("sd", scalar(&t.SD, within(1, 100*longestService))),
		shaped.need("shape", scalar(&t.Shape, fraction(0.1, 100))),
		bimodal.need("short", scalar(&t.Short, within(1, longestService))),
		bimodal.need("long", scalar(&t.Long, within(1, longestService))),
		bimodal.need("long_share", scalar(&t.LongShare, fraction(0, 1))),
		filed.need("file", scalar(&t.File, traceFile())),
		filed.optional("duration_factor", "1", scalar(&t.Factor, fraction(0.001, 1000))),
	}
}

func arrivals(a *Arrivals) []entry {
	is := func(p Process) *condition {
		return &condition{"process: " + string(p), func() bool { return a.Process == p }}
	}
	rated := &condition{"a process other than trace", func() bool { return a.Process != Recorded }}
	return []entry{
		optional("process", "poisson", scalar(&a.Process, oneOf(Poisson, Stepped, Diurnal, Recorded))),
		rated.optional("unit", "rho", scalar(&a.Unit, oneOf(Rho, PerSecond))),
		is(Poisson).optional("rate", "", scalar(&a.Rate, fraction(1e-6, 1e9))),
		is(Stepped).need("steps", sequence(&a.Steps, 1, 1024, step)),
		is(Diurnal).need("low", scalar(&a.Low, fraction(0, 1e9))),
		is(Diurnal).need("high", scalar(&a.High, fraction(1e-6, 1e9))),
		is(Diurnal).need("period", scalar(&a.Period, within(time.Second, longestStretch))),
		is(Recorded).need("file", scalar(&a.File, traceFile())),
		is(Recorded).optional("rate_factor", "1", scalar(&a.Factor, fraction(0.001, 1000))),
	}
}

func step(s *Step) []entry {
	return []entry{
		optional("lasting", "", scalar(&s.Lasting, within(time.Millisecond, longestStretch))),
		need("rate", scalar(&s.Rate, fraction(0, 1e9))),
	}
}
