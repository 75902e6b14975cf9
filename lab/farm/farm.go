// Package farm reads the description of a farm to simulate, and of the requests that
// come to it, from YAML: farm.go has its nouns and words, table.go the keys, check.go
// the mistakes that no single value shows.
package farm

import (
	"time"

	"proffer/schema"
)

// File is a farm to simulate and the requests that come to it. Nothing of it is
// on any wire, so it is a noun of its file alone and not one of topo.
type File struct {
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
	Events             []Event
	Antagonists        Antagonists
	Flood              Flood
	Service            Times
	Stages             Stages
	IO                 Times // of the disk; only when Stages have one
	Arrivals           Arrivals
	Requests           int           // 0: not stated
	CountFrom, CountTo float64       // shares of the requests
	After, Until       time.Duration // instants of arrival; Until 0: to the end

	doc *schema.Document // positions of the keys
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

// Antagonists take a share of the speed of every server, drawn again and again.
// Every 0: there are none.
type Antagonists struct {
	Every       time.Duration
	Idle        float64 // probability of no share
	Least, Most float64 // else from Least to Most
}

// Flood is SYNs with forged sources, so many a request. Times 0: there are none.
type Flood struct {
	Times   float64
	Expires time.Duration // the life of such an entry of an LB
}

// Event happens to the servers from First to Last, or to the LB.
type Event struct {
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
	MaxServers  = 1_000_000
	MaxRequests = 100_000_000
)

// Parse reads the description of a farm to simulate. file is a name for errors, and
// without its folders and extension the name of a farm that states none. The trace
// files that it names are not opened. The error joins one *schema.Error for each
// mistake found, in the order of the file.
func Parse(file string, data []byte) (*File, error) {
	doc := &schema.Document{File: file}
	farm := &File{doc: doc}
	doc.Parse(data, table(farm))
	if doc.OK() {
		complete(farm)
		check(doc, farm)
	}
	if err := doc.Err(); err != nil {
		return nil, err
	}
	return farm, nil
}

// Mistake is an error at a key, such as "arrivals.file", for mistakes that only show when
// the farm is to be run.
func (f *File) Mistake(key, problem string) *schema.Error { return f.doc.Mistake(key, problem) }
