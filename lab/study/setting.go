package study

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	"proffer/lab/farm"
	"proffer/lab/sim"
	"proffer/lab/stats"
	"proffer/lab/trace"
)

// Setting is a farm and the requests that come to it, but for their rate where
// that is open.
type Setting struct {
	Name string
	Farm sim.Farm // its Default is the workload, without arrivals

	arrivals farm.Arrivals   // the zero value: Poisson, at a rate that is open
	recorded []time.Duration // arrivals.process: trace
}

// Names lists the farms that Named knows, with their descriptions.
func Names() [][2]string {
	return [][2]string{
		{"A", "6LB §VI: 48 servers of 2 cores (sharing, 32 workers, backlog 128), 2 LBs, exponential service of 190 ms"},
		{"B", "HLB §VI: the same as B:c1:2"},
		{"B:c1:K", "128 FIFO servers (backlog 64), 64 with 1 core and 64 with K, 4 LBs, exponential service of 500 ms; a refusal adds 40 s, the middle half of the requests counts"},
		{"B:v1:K", "the same with 1 core each, 64 of them K times as fast"},
		{"B:hom", "the same with 128 alike servers of 1 core"},
	}
}

// ErrNoName is the error of a farm with a name that Named does not know.
var ErrNoName = errors.New("want A, B, B:c1:K, B:v1:K, B:hom or a FILE.yaml")

// Named is one of the papers' farms.
func Named(name string) (*Setting, error) {
	kind, ofB := strings.CutPrefix(name, "B:")
	switch {
	case name == "A":
		return &Setting{Name: name, Farm: sim.FarmA()}, nil
	case name == "B":
		kind = "c1:2"
	case !ofB:
		return nil, fmt.Errorf("unknown farm %q: %w", name, ErrNoName)
	}
	farm, err := sim.FarmB(kind)
	return &Setting{Name: name, Farm: farm}, err
}

// FromFile is the farm that a file describes. read opens a trace file by the
// path that the farm file has. Errors name the place in the farm file, or in the
// trace.
func FromFile(f *farm.File, read func(path string) (*trace.File, error)) (*Setting, error) {
	b := builder{file: f, read: read, traces: map[string]*trace.File{}}
	s := &Setting{Name: f.Name, arrivals: f.Arrivals}
	if f.Arrivals.Process == farm.Recorded {
		s.recorded = b.scaled("arrivals.rate_factor", 1/f.Arrivals.Factor, b.column("arrivals.file", f.Arrivals.File, atColumn))
	}
	s.Farm = b.farm()
	s.Farm.Default = b.work(len(s.recorded))
	if b.err == nil {
		if err := s.SetRequests(s.Farm.Default.Requests); err != nil {
			b.err = f.Mistake("requests", err.Error())
		}
	}
	return s, b.err
}

// DefaultRequests is how many there are in a run unless a file or flag states another number.
const DefaultRequests = 80_000

// SetRequests changes the number of requests of a run.
func (s *Setting) SetRequests(n int) error {
	w := &s.Farm.Default
	switch {
	case n < 1 || n > farm.MaxRequests:
		return fmt.Errorf("want 1 to %d", farm.MaxRequests)
	case s.recorded != nil && n > len(s.recorded):
		return fmt.Errorf("the trace of arrivals has only %d", len(s.recorded))
	case w.To > 0 && int(w.From*float64(n)) >= int(w.To*float64(n)):
		return fmt.Errorf("none of so few lies in the part that counts, %v to %v of them; want more", w.From, w.To)
	}
	w.Requests = n
	return nil
}

// Describe is the farm in a few words.
func (s *Setting) Describe() string {
	cores := 0
	for _, server := range s.Farm.Servers {
		cores += server.Cores
	}
	return fmt.Sprintf("farm %s: %s with %s, %s", s.Name,
		stats.Counted(len(s.Farm.Servers), "server"), stats.Counted(cores, "core"), stats.Counted(s.Farm.LBs, "LB"))
}

// builder turns a farm file's words into those of sim, up to the first mistake.
type builder struct {
	file   *farm.File
	read   func(path string) (*trace.File, error)
	traces map[string]*trace.File
	err    error
}

func (b *builder) farm() sim.Farm {
	f := b.file
	built := sim.Farm{
		Name: f.Name, LBs: f.LBs, HopMin: f.HopLeast, HopMax: f.HopMost,
		ClientRTT: b.times("client_rtt", f.ClientRTT),
		FlowTable: f.FlowTable, Penalty: f.Penalty, Table: f.Table, Choices: f.Choices,
	}
	for i, g := range f.Groups {
		server := sim.Server{Cores: g.Cores, Speed: g.Speed, Workers: g.Workers, Backlog: g.Backlog, Group: i, Weight: g.Weight, Threshold: g.Threshold}
		if g.Discipline == farm.FIFO {
			server.Discipline = sim.FIFO
		}
		for range g.Count {
			built.Servers = append(built.Servers, server)
		}
	}
	for _, work := range f.Background {
		background := sim.Background{From: work.From, To: work.To, Cores: work.Cores}
		for i := work.First; i <= work.Last; i++ {
			background.Servers = append(background.Servers, i)
		}
		built.Background = append(built.Background, background)
	}
	built.Events = events(f.Events)
	built.Antagonists = sim.Antagonists(f.Antagonists)
	built.Flood = sim.Flood(f.Flood)
	return built
}

func events(list []farm.Event) (events []sim.Event) {
	kinds := map[farm.EventKind]sim.EventKind{farm.Join: sim.Join, farm.Drain: sim.Drain, farm.Fail: sim.Fail, farm.FailLB: sim.FailLB}
	for _, v := range list {
		event := sim.Event{At: v.At, Kind: kinds[v.Kind], LB: v.LB}
		if v.Kind != farm.FailLB {
			for i := v.First; i <= v.Last; i++ {
				event.Servers = append(event.Servers, i)
			}
		}
		events = append(events, event)
	}
	return events
}

func (b *builder) work(recorded int) sim.Workload {
	f := b.file
	stages := map[farm.Stages]int{farm.CPU: 1, farm.CPUIO: 2, farm.CPUIOCPU: 3}
	return sim.Workload{
		Requests: cmp.Or(f.Requests, recorded, DefaultRequests),
		Service:  b.times("service", f.Service),
		Stages:   stages[f.Stages],
		IO:       b.times("io", f.IO),
		From:     f.CountFrom, To: f.CountTo,
		After: f.After, Until: f.Until,
	}
}

func (b *builder) times(key string, t farm.Times) sim.Distribution {
	switch t.Family {
	case farm.Exponential:
		return sim.Exponential(t.Mean)
	case farm.Lognormal:
		return sim.Lognormal(t.Mean, t.SD)
	case farm.Hyperexponential:
		return sim.Hyperexponential(t.Mean, t.SD)
	case farm.Pareto:
		return sim.Pareto(t.Mean, t.Shape)
	case farm.Weibull:
		return sim.Weibull(t.Mean, t.Shape)
	case farm.Bimodal:
		return sim.Bimodal(t.Short, t.Long, t.LongShare)
	case farm.Sampled:
		return sim.Sampled(b.services(key, t))
	case farm.Traced:
		return sim.Listed(b.services(key, t))
	default:
		return sim.Deterministic(t.Mean)
	}
}

const (
	atColumn      = "arrival_s"
	serviceColumn = "service_s"
)

// services is the column of service times, scaled.
func (b *builder) services(key string, t farm.Times) []time.Duration {
	return b.scaled(key+".duration_factor", t.Factor, b.column(key+".file", t.File, serviceColumn))
}

// scaled multiplies all times of a list, which it may change.
func (b *builder) scaled(key string, factor float64, list []time.Duration) []time.Duration {
	if factor == 1 {
		return list
	}
	for i, x := range list {
		scaled := math.Round(float64(x) * factor)
		if scaled > float64(longest) {
			b.err = cmp.Or(b.err, error(b.file.Mistake(key, fmt.Sprintf("makes time %d of the trace last %.3g years; want 10 at most", i+1, scaled/float64(longest)*10))))
			return nil
		}
		list[i] = time.Duration(scaled)
	}
	return list
}

// column reads one column of a trace file, each file once.
func (b *builder) column(key, path, column string) []time.Duration {
	file, known := b.traces[path]
	if !known && b.err == nil {
		file, b.err = b.open(key, path)
		b.traces[path] = file
	}
	if b.err != nil {
		return nil
	}
	if column == atColumn && !file.HasAt || column == serviceColumn && !file.HasService {
		b.err = b.file.Mistake(key, fmt.Sprintf("%q has no column %s", path, column))
		return nil
	}
	list := make([]time.Duration, len(file.Arrivals))
	sum := 0.0
	for i, a := range file.Arrivals {
		list[i] = a.Service
		if column == atColumn {
			list[i] = a.At
		}
		sum += float64(list[i])
	}
	if sum == 0 && column == serviceColumn {
		b.err = b.file.Mistake(key, fmt.Sprintf("%q has nothing but 0 in column %s", path, column))
	}
	return list
}

// open adds the place of the path to an error, unless the mistake is inside the trace.
func (b *builder) open(key, path string) (*trace.File, error) {
	file, err := b.read(path)
	if inside := (*trace.Error)(nil); err != nil && !errors.As(err, &inside) {
		return nil, b.file.Mistake(key, err.Error())
	}
	return file, err
}
