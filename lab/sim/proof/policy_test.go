package proof

import (
	"math"
	"strings"
	"testing"
	"time"

	"proffer/lab/sim"
	"proffer/lab/sim/learned"
)

func TestParsePolicy(t *testing.T) {
	for _, name := range sim.Policies() {
		if p, err := sim.ParsePolicy(name); err != nil || p.String() != name {
			t.Errorf("ParsePolicy(%q) = %v, %v", name, p, err)
		}
	}
	for name, want := range map[string]string{
		"":                 `unknown policy ""`,
		"single2":          `unknown policy "single2"`,
		"guided2":          `unknown policy "guided2"`,
		"gsq":              `unknown policy "gsq"`,
		"jsq:":             `unknown policy "jsq:"`,
		"jsq:2":            `unknown policy "jsq:2"`,
		"hunt":             `policy "hunt": unknown acceptance ""`,
		"hunt:static:-1":   `policy "hunt:static:-1": threshold "-1" is not a whole number`,
		"guided:":          `policy "guided:": "" candidates: want 2 to 8`,
		"guided:1":         `policy "guided:1": "1" candidates: want 2 to 8`,
		"guided:9":         `policy "guided:9": "9" candidates: want 2 to 8`,
		"guided:04":        `policy "guided:04": "04" candidates`,
		"learned:":         `policy "learned:": "": want ages, completed, fixed, literal, syn or the size of a reservoir`,
		"learned:0":        `policy "learned:0": "0": want`,
		"prequal:fast":     `policy "prequal:fast": "fast": want inflight, perfect or sync`,
		"c3:2":             `unknown policy "c3:2"`,
		"learned:finished": `policy "learned:finished": "finished": want`,
	} {
		if _, err := sim.ParsePolicy(name); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("ParsePolicy(%q)\n got %v\nwant %s…", name, err, want)
		}
	}
	p, err := sim.ParsePolicy("learned2:completed:128:fixed")
	if err != nil || !p.TwoChoices || p.Settings != (learned.Learning{Completed: true, Reservoir: 128, FixedR: 0.5, Published: true}) {
		t.Errorf("got %+v, %v", p, err)
	}
}

func TestRunRefuses(t *testing.T) {
	negative := []time.Duration{1, -1}
	for want, spoil := range map[string]func(f *sim.Farm, w *sim.Workload, p *sim.Policy){
		"no servers":                    func(f *sim.Farm, _ *sim.Workload, _ *sim.Policy) { f.Servers = nil },
		"0 LBs: want 1 or more":         func(f *sim.Farm, _ *sim.Workload, _ *sim.Policy) { f.LBs = 0 },
		"a hop takes from 1ms to 0s":    func(f *sim.Farm, _ *sim.Workload, _ *sim.Policy) { f.HopMin, f.HopMax = time.Millisecond, 0 },
		"a hop takes from 0s to 1h0m0s": func(f *sim.Farm, _ *sim.Workload, _ *sim.Policy) { f.HopMin, f.HopMax = 0, time.Hour },
		"server 0: 0 cores":             func(f *sim.Farm, _ *sim.Workload, _ *sim.Policy) { f.Servers = []sim.Server{{}} },
		"server 0: 0 workers":           func(f *sim.Farm, _ *sim.Workload, _ *sim.Policy) { f.Servers = []sim.Server{{Cores: 1}} },
		"server 0: speed -1": func(f *sim.Farm, _ *sim.Workload, _ *sim.Policy) {
			f.Servers = []sim.Server{{Cores: 1, Workers: 1, Speed: -1}}
		},
		"background work 0: servers [9]": func(f *sim.Farm, _ *sim.Workload, _ *sim.Policy) {
			f.Background = []sim.Background{{Servers: []int{9}}}
		},
		"0 requests: want 1":                                  func(_ *sim.Farm, w *sim.Workload, _ *sim.Policy) { w.Requests = 0 },
		"4 stages: want 1 to 3":                               func(_ *sim.Farm, w *sim.Workload, _ *sim.Policy) { w.Stages = 4 },
		"requests use the disk":                               func(_ *sim.Farm, w *sim.Workload, _ *sim.Policy) { w.Stages = 2 },
		"requests from 0.5 to 0.2 count":                      func(_ *sim.Farm, w *sim.Workload, _ *sim.Policy) { w.From, w.To = 0.5, 0.2 },
		"no service time":                                     func(_ *sim.Farm, w *sim.Workload, _ *sim.Policy) { w.Service = sim.Distribution{} },
		"service time: number 1 of the list":                  func(_ *sim.Farm, w *sim.Workload, _ *sim.Policy) { w.Service = sim.Listed(negative) },
		"service time: mean -1s":                              func(_ *sim.Farm, w *sim.Workload, _ *sim.Policy) { w.Service = sim.Exponential(-time.Second) },
		"service time: pareto of shape 1: want 1.1 to 100":    func(_ *sim.Farm, w *sim.Workload, _ *sim.Policy) { w.Service = sim.Pareto(time.Second, 1) },
		"service time: weibull of shape NaN: want 0.1 to 100": func(_ *sim.Farm, w *sim.Workload, _ *sim.Policy) { w.Service = sim.Weibull(time.Second, math.NaN()) },
		"service time: bimodal of 2s and 1s, a share of 0.5 ": func(_ *sim.Farm, w *sim.Workload, _ *sim.Policy) {
			w.Service = sim.Bimodal(2*time.Second, time.Second, 0.5)
		},
		"service time: hyperexponential of mean 2s": func(_ *sim.Farm, w *sim.Workload, _ *sim.Policy) {
			w.Service = sim.Hyperexponential(2*time.Second, time.Second)
		},
		"arrivals: none":                          func(_ *sim.Farm, w *sim.Workload, _ *sim.Policy) { w.Arrivals = sim.Arrivals{} },
		"arrivals: the instants do not ascend":    func(_ *sim.Farm, w *sim.Workload, _ *sim.Policy) { w.Arrivals = sim.At([]time.Duration{2, 1}) },
		"arrivals: step 0: -1 a second":           func(_ *sim.Farm, w *sim.Workload, _ *sim.Policy) { w.Arrivals = sim.Poisson(-1) },
		"arrivals: the last step has no arrivals": func(_ *sim.Farm, w *sim.Workload, _ *sim.Policy) { w.Arrivals = sim.Poisson(0) },
		"requests from 2s to 1s count":            func(_ *sim.Farm, w *sim.Workload, _ *sim.Policy) { w.After, w.Until = 2*time.Second, time.Second },
		"antagonists: shares from 0.9 to 0.2": func(f *sim.Farm, _ *sim.Workload, _ *sim.Policy) {
			f.Antagonists = sim.Antagonists{Every: 1, Least: 0.9, Most: 0.2}
		},
		"antagonists: idle with probability 2":             func(f *sim.Farm, _ *sim.Workload, _ *sim.Policy) { f.Antagonists = sim.Antagonists{Every: 1, Idle: 2} },
		"-1 forged SYNs a request":                         func(f *sim.Farm, _ *sim.Workload, _ *sim.Policy) { f.Flood.Times = -1 },
		"a forged SYN is forgotten after 0s":               func(f *sim.Farm, _ *sim.Workload, _ *sim.Policy) { f.Flood.Times = 1 },
		"no policy":                                        func(_ *sim.Farm, _ *sim.Workload, p *sim.Policy) { *p = sim.Policy{} },
		"policy guided:8 offers to 8 servers, there are 7": func(_ *sim.Farm, _ *sim.Workload, p *sim.Policy) { *p, _ = sim.ParsePolicy("guided:8") },
	} {
		f := smallFarm()
		w, p := f.Load(0.5), mustParse(t, "jsq")
		spoil(&f, &w, &p)
		if _, err := sim.Run(f, p, w, 1); err == nil || !strings.HasPrefix(err.Error(), `simulate farm "small": `+want) {
			t.Errorf("got %v, want %s…", err, want)
		}
	}
	for _, kind := range []string{"", "c1", "c1:", "c1:0", "c1:x", "v2:1", "homo"} {
		if _, err := sim.FarmB(kind); err == nil {
			t.Errorf("FarmB(%q) is a farm", kind)
		}
	}
}

// TestUtilisation: 1 is where the first resource of the farm is busy throughout.
func TestUtilisation(t *testing.T) {
	f, err := sim.FarmB("c1:2")
	if err != nil {
		t.Fatal(err)
	}
	if got := f.Capacity(f.Default); got != 384 {
		t.Errorf("192 cores serve %v requests of 500 ms a second, want 384", got)
	}
	w := f.Default
	w.Stages, w.IO = 3, sim.Exponential(time.Second)
	if got := f.Capacity(w); got != 128 {
		t.Errorf("128 disks serve %v requests of 1 s a second, want 128", got)
	}
	if got := f.Utilisation(f.Load(0.9)); got < 0.8999 || got > 0.9001 {
		t.Errorf("a load of 0.9 is %v", got)
	}
}

// TestProbe sees a farm that is busy as much as it should be.
func TestProbe(t *testing.T) {
	f := smallFarm()
	w := f.Load(0.5)
	probes, busy := 0, 0.0
	w.ProbeEvery = 50 * time.Millisecond
	w.Probe = func(s sim.Snapshot) {
		probes++
		for _, n := range s.Busy {
			busy += float64(n)
		}
		if len(s.Left) != len(f.Servers) || len(s.Weights) != f.LBs || len(s.Scores) != f.LBs || len(s.Gain) != f.LBs {
			t.Fatalf("snapshot %+v", s)
		}
	}
	r := mustRun(t, f, mustParse(t, "learned:ages"), w, 1)
	if want := int(r.Lasted / w.ProbeEvery); probes < want-1 || probes > want {
		t.Errorf("%d probes in %v, want %d", probes, r.Lasted, want)
	}
	if busy == 0 {
		t.Error("no server was ever busy")
	}
}
