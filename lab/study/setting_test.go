package study

import (
	"errors"
	"io/fs"
	"math"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"

	"proffer/lab/farm"
	"proffer/lab/sim"
	"proffer/lab/trace"
	"proffer/schema"
)

// traces are files by name.
type traces map[string]string

func (t traces) read(path string) (*trace.File, error) {
	text, ok := t[path]
	if !ok {
		return nil, &fs.PathError{Op: "open", Path: path, Err: fs.ErrNotExist}
	}
	return trace.Read(path, strings.NewReader(text))
}

const oneServer = "servers: [{count: 1, cores: 2, speed: 2, discipline: fifo}]\n"

func setting(text string, files traces) (*Setting, error) {
	file, err := farm.Parse("farm.yaml", []byte(text))
	if err != nil {
		return nil, err
	}
	return FromFile(file, files.read)
}

func wantSetting(t *testing.T, text string, files traces) *Setting {
	t.Helper()
	s, err := setting(text, files)
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	return s
}

func TestNamed(t *testing.T) {
	for name, servers := range map[string]int{"A": 48, "B": 128, "B:c1:4": 128, "B:v1:2": 128, "B:hom": 128} {
		s, err := Named(name)
		if err != nil || s.Name != name || len(s.Farm.Servers) != servers {
			t.Errorf("%s: %v, %+v", name, err, s)
		}
	}
	b, _ := Named("B")
	same, _ := Named("B:c1:2")
	if !reflect.DeepEqual(b.Farm, same.Farm) {
		t.Error("B is not B:c1:2")
	}
	for _, name := range []string{"", "a", "C", "B:", "B:c1", "B:c1:0", "A:c1:2"} {
		if _, err := Named(name); err == nil {
			t.Errorf("%q is a farm", name)
		}
	}
}

func TestFromFile(t *testing.T) {
	data, err := os.ReadFile("../farm/testdata/farm.yaml")
	if err != nil {
		t.Fatal(err)
	}
	s := wantSetting(t, string(data), traces{"traces/io.csv": "service_s\n0.001\n0.003\n"})
	sharing := sim.Server{Cores: 2, Speed: 1.5, Discipline: sim.Sharing, Workers: 16, Backlog: 64, Weight: 1}
	fifo := sim.Server{Cores: 4, Speed: 1, Discipline: sim.FIFO, Group: 1, Weight: 3, Threshold: 8}
	const ms = time.Millisecond
	want := sim.Farm{
		Name: "every:key", LBs: 4, Servers: []sim.Server{sharing, sharing, sharing, fifo, fifo},
		HopMin: 50 * time.Microsecond, HopMax: 2 * ms, ClientRTT: sim.Lognormal(20*ms, 10*ms),
		FlowTable: 4096, Penalty: 40 * time.Second, Table: 1021, Choices: 3,
		Antagonists: sim.Antagonists{Every: 5 * time.Second, Idle: 0.25, Least: 0.1, Most: 0.7},
		Flood:       sim.Flood{Times: 5, Expires: 3 * time.Second},
		Events: []sim.Event{
			{At: 10 * time.Second, Kind: sim.Join, Servers: []int{3, 4}},
			{At: time.Minute, Kind: sim.FailLB, LB: 3},
		},
		Background: []sim.Background{
			{Servers: []int{0, 1, 2}, Cores: 0.5},
			{Servers: []int{4}, Cores: 4, From: time.Minute, To: 2 * time.Minute},
		},
		Default: sim.Workload{
			Requests: 5000, Service: sim.Hyperexponential(190*ms, 400*ms),
			Stages: 3, IO: sim.Listed([]time.Duration{ms, 3 * ms}), From: 0.25, To: 0.75,
			After: 10 * time.Second, Until: 3 * time.Minute,
		},
	}
	if !reflect.DeepEqual(s.Farm, want) {
		t.Errorf("\n got %+v\nwant %+v", s.Farm, want)
	}
}

// TestScaledTraces: twice the rate halves the instants, a duration factor
// multiplies services, and one list is scaled once for each of its uses.
func TestScaledTraces(t *testing.T) {
	files := traces{"both": "0 1\n10 3\n"}
	s := wantSetting(t, oneServer+`
service: {distribution: trace, file: both, duration_factor: 0.5}
client_rtt: {distribution: sampled, file: both}
arrivals: {process: trace, file: both, rate_factor: 2}
`, files)
	if want := []time.Duration{0, 5 * time.Second}; !reflect.DeepEqual(s.recorded, want) {
		t.Errorf("arrivals %v, want %v", s.recorded, want)
	}
	if want := sim.Listed([]time.Duration{time.Second / 2, 3 * time.Second / 2}); !reflect.DeepEqual(s.Farm.Default.Service, want) {
		t.Errorf("service %v, want %v", s.Farm.Default.Service, want)
	}
	if want := sim.Sampled([]time.Duration{time.Second, 3 * time.Second}); !reflect.DeepEqual(s.Farm.ClientRTT, want) {
		t.Errorf("client RTT %v, want %v", s.Farm.ClientRTT, want)
	}
}

// TestDistributionsOfAFile: each has its constructor.
func TestDistributionsOfAFile(t *testing.T) {
	const ms = time.Millisecond
	for text, want := range map[string]sim.Distribution{
		"pareto, mean: 5ms, shape: 1.5":                     sim.Pareto(5*ms, 1.5),
		"weibull, mean: 5ms, shape: 0.5":                    sim.Weibull(5*ms, 0.5),
		"bimodal, short: 1ms, long: 10ms, long_share: 0.25": sim.Bimodal(ms, 10*ms, 0.25),
		"sampled, file: values, duration_factor: 3":         sim.Sampled([]time.Duration{3 * ms, 6 * ms}),
	} {
		s := wantSetting(t, oneServer+"service: {distribution: "+text+"}\n", traces{"values": "service_s\n0.001\n0.002\n"})
		if !reflect.DeepEqual(s.Farm.Default.Service, want) {
			t.Errorf("%s: got %+v, want %+v", text, s.Farm.Default.Service, want)
		}
	}
}

func TestFromFileRefuses(t *testing.T) {
	const service = "service: {distribution: deterministic, mean: 1s}\n"
	files := traces{
		"broken.txt":  "0 1\n1 x\n",
		"arrivals":    "arrival_s\n0\n1\n2\n",
		"services":    "service_s\n1\n",
		"nothing.txt": "0 0\n1 0\n",
		"late":        "0 1\n4000000000 1\n",
	}
	for text, want := range map[string]string{
		"service: {distribution: trace, file: no.txt}":                         `farm.yaml:2:38: service.file: open no.txt: file does not exist`,
		"service: {distribution: trace, file: broken.txt}":                     `broken.txt:2: service_s "x" is not a number of seconds from 0 to 4000000000; want "arrival_s service_s", such as "0.25 0.019"`,
		"service: {distribution: trace, file: arrivals}":                       `farm.yaml:2:38: service.file: "arrivals" has no column service_s`,
		"service: {distribution: trace, file: nothing.txt}":                    `farm.yaml:2:38: service.file: "nothing.txt" has nothing but 0 in column service_s`,
		service + "arrivals: {process: trace, file: late, rate_factor: 0.001}": `farm.yaml:3:53: arrivals.rate_factor: makes time 2 of the trace last 1.27e+05 years; want 10 at most`,
		service + "arrivals: {process: trace, file: services}":                 `farm.yaml:3:34: arrivals.file: "services" has no column arrival_s`,
		service + "arrivals: {process: trace, file: arrivals}\nrequests: 4":    `farm.yaml:4:11: requests: the trace of arrivals has only 3`,
		service + "requests: 3\ncounted: {from: 0.4, to: 0.6}":                 `farm.yaml:3:11: requests: none of so few lies in the part that counts, 0.4 to 0.6 of them; want more`,
	} {
		if _, err := setting(oneServer+text, files); err == nil || err.Error() != want {
			t.Errorf("%s:\n got %v\nwant %s", text, err, want)
		}
	}
}

// TestLoads: a farm of power 4 and a service of 1 s serve 4 requests a second.
func TestLoads(t *testing.T) {
	const base = oneServer + "service: {distribution: deterministic, mean: 1s}\nrequests: 120\n"
	replay := traces{"arrivals": "arrival_s\n10\n" + strings.Repeat("20\n", 78) + "50\n"}
	for arrivals, want := range map[string]Load{
		"{rate: 0.5}":                         {Rho: 0.5, End: 0.5, Lasts: 60 * time.Second},
		"{rate: 1}":                           {Rho: 1, End: 1, Lasts: 30 * time.Second},
		"{rate: 2, unit: per_second}":         {Rho: 0.5, End: 0.5, Lasts: 60 * time.Second},
		"{rate: 2}\nlbs: 3":                   {Rho: 2, End: 2, Lasts: 15 * time.Second},
		"{process: trace, file: arrivals}\n#": {Rho: 0.5, End: 0.5, Lasts: 40 * time.Second},
		"{process: stepped, steps: [{rate: 0, lasting: 20s}, {rate: 1.5, lasting: 10s}, {rate: 0.5}]}": {Rho: 0.5, End: 0.5, Lasts: 60 * time.Second},
		"{process: stepped, steps: [{rate: 1, lasting: 1h}, {rate: 0.5}]}":                             {Rho: 1, End: 1, Lasts: 30 * time.Second},
		"{process: diurnal, low: 0.2, high: 0.95, period: 1m}":                                         {Rho: 0.6, End: 0.6, Lasts: 50 * time.Second},
		"{rate: 0.5}\nbackground: [{servers: 0, cores: 1}, {servers: 0, cores: 0.5}]":                  {Rho: 0.5, End: 2, Lasts: 60 * time.Second},
		"{rate: 0.5}\nbackground: [{servers: 0, cores: 2, to: 1m}]":                                    {Rho: 0.5, End: 0.5, Lasts: 60 * time.Second},
	} {
		text := base
		if strings.HasSuffix(arrivals, "#") {
			text = strings.Replace(base, "requests: 120\n", "", 1)
		}
		got, stated, err := wantSetting(t, text+"arrivals: "+arrivals, replay).Stated()
		got.Work = sim.Workload{}
		got.Lasts = got.Lasts.Round(time.Millisecond)
		if err != nil || !stated || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %v, %v\n got %+v\nwant %+v", arrivals, stated, err, got, want)
		}
		if got.Overload() != (want.End >= 1) {
			t.Errorf("%s: overload is %v", arrivals, got.Overload())
		}
	}
	if _, stated, err := wantSetting(t, base, nil).Stated(); stated || err != nil {
		t.Errorf("a farm that says nothing of arrivals: %v, %v", stated, err)
	}
}

// TestLoadsLastAsExpected holds the mean rates here to the arrivals of sim.
func TestLoadsLastAsExpected(t *testing.T) {
	const base = oneServer + "service: {distribution: deterministic, mean: 1ms}\nrequests: 50000\n"
	for _, arrivals := range []string{
		"{rate: 0.5}",
		"{process: stepped, steps: [{rate: 0.9, lasting: 4s}, {rate: 0.3, lasting: 20s}, {rate: 0.6}]}",
		"{process: diurnal, low: 0.2, high: 0.95, period: 1s}",
	} {
		s := wantSetting(t, base+"arrivals: "+arrivals, nil)
		load, _, err := s.Stated()
		if err != nil {
			t.Fatal(err)
		}
		policy, err := sim.ParsePolicy("single")
		if err != nil {
			t.Fatal(err)
		}
		result, err := sim.Run(s.Farm, policy, load.Work, 1)
		if err != nil {
			t.Fatal(err)
		}
		if ratio := result.Lasted.Seconds() / load.Lasts.Seconds(); math.Abs(ratio-1) > 0.03 {
			t.Errorf("%s (seed 1): lasted %v, expected %v", arrivals, result.Lasted, load.Lasts)
		}
	}
}

func TestStatedRateIsThatOfTheFlag(t *testing.T) {
	data := oneServer + "service: {distribution: exponential, mean: 190ms}\narrivals: {rate: 0.87}\n"
	s := wantSetting(t, data, nil)
	stated, _, err := s.Stated()
	if err != nil {
		t.Fatal(err)
	}
	if flag := at(t, s, 0.87); !reflect.DeepEqual(stated, flag) {
		t.Errorf("\n got %+v\nwant %+v", stated, flag)
	}
}

func TestLoadsRefuseCenturies(t *testing.T) {
	for _, text := range []string{
		oneServer + "service: {distribution: deterministic, mean: 1h}\nrequests: 100000000\narrivals: {rate: 0.9}",
		oneServer + "service: {distribution: deterministic, mean: 1s}\narrivals: {rate: 0.000001}",
		oneServer + "service: {distribution: deterministic, mean: 1h}\nrequests: 100000000\narrivals: {rate: 1e9, unit: per_second}",
	} {
		if _, _, err := wantSetting(t, text, nil).Stated(); err == nil || !strings.Contains(err.Error(), "can take centuries") {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// FuzzRun runs every farm that is accepted, with few requests.
func FuzzRun(f *testing.F) {
	for _, file := range []string{"farm.example.yaml", "testdata/farm.yaml", "testdata/farm-short.yaml"} {
		data, err := os.ReadFile("../farm/" + file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(string(data))
	}
	recorded := func(string) (*trace.File, error) { return trace.Read("t", strings.NewReader("0 1\n5 0\n9 2\n")) }
	f.Fuzz(func(t *testing.T, data string) {
		file, err := farm.Parse("farm.yaml", []byte(data))
		if err != nil || file.Servers() > 200 || file.LBs > 20 || file.FlowTable > 1<<16 {
			return
		}
		s, err := FromFile(file, recorded)
		if err != nil {
			wantOneLine(t, err)
			return
		}
		if s.recorded == nil {
			s.Farm.Default.Requests = min(50, s.Farm.Default.Requests)
		}
		load, stated, err := s.Stated()
		if !stated {
			load, err = s.At(0.9)
		}
		if err != nil {
			wantOneLine(t, err)
			return
		}
		for _, name := range []string{"single", "sed", "oraclef", "hunt:dynamic", "guided"} {
			policy, err := sim.ParsePolicy(name)
			if err != nil {
				t.Fatal(err)
			}
			if policy.Choices > len(s.Farm.Servers) {
				continue
			}
			result, err := sim.Run(s.Farm, policy, load.Work, 1)
			if err != nil {
				t.Fatalf("%v\n%s", err, data)
			}
			if result.Mean < 0 {
				t.Fatalf("%s: mean %v\n%s", name, result.Mean, data)
			}
		}
	})
}

func wantOneLine(t *testing.T, err error) {
	t.Helper()
	var mistake *schema.Error
	if strings.Contains(err.Error(), "\n") {
		t.Fatalf("not one line: %q", err)
	}
	if errors.As(err, &mistake) && mistake.Line < 1 {
		t.Fatalf("no place: %v", err)
	}
}

// TestDescribe: one of a thing is not several.
func TestDescribe(t *testing.T) {
	s := Setting{Name: "small", Farm: sim.Farm{LBs: 1, Servers: []sim.Server{{Cores: 2}}}}
	if got, want := s.Describe(), "farm small: 1 server with 2 cores, 1 LB"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}
