package bench_test

import (
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"golang.org/x/sys/unix"

	"proffer/dataplane/bench"
	"proffer/dataplane/objects"
	"proffer/proof/rig"
	"proffer/wire"
)

// steered is a bench of an LB that knows the test's flow, and that flow's data.
func steered(t *testing.T) (*bench.LB, int, *bench.Drill) {
	t.Helper()
	rig.Enter(t)
	cpu := runtime.NumCPU() - 1
	var only unix.CPUSet
	only.Set(cpu)
	if err := unix.SchedSetaffinity(0, &only); err != nil {
		t.Fatal(err)
	}
	b, err := bench.NewLB(rig.LBConfig(rig.Hunting(2, 8, rig.Members)), 0)
	if err != nil {
		t.Fatalf("%+v", err)
	}
	t.Cleanup(func() { b.Close() })
	r := &rig.LB{LB: b.LB, Cfg: rig.LBConfig(rig.Hunting(2, 8, rig.Members))}
	r.Resolve(t, 8)
	const flow = 7 << 14 // of clientAddr, which ends in 7
	p := rig.Outward(rig.HuntPort, wire.ACK)
	p.Payload = make([]byte, 100)
	d := &bench.Drill{Step: bench.Step{Frame: rig.SignalFrom(1, p, wire.CreateStickiness, wire.Generation(rig.ClientISN)), Address: 92, Port: 96}, Changed: 64, First: flow}
	if _, err := b.Run(cpu, 1, d); err != nil {
		t.Fatal(err)
	}
	q := rig.Inward(rig.HuntPort, wire.ACK)
	q.Payload = make([]byte, 100)
	return b, cpu, &bench.Drill{Step: bench.Step{Frame: q.Frame(), Address: 36, Port: 54}, Changed: 32, Flows: 1, First: flow}
}

// TestBench: the bench measures the program itself, and every
// packet is counted.
func TestBench(t *testing.T) {
	b, cpu, d := steered(t)
	r, err := b.Run(cpu, 1000, d)
	if err != nil {
		t.Fatal(err)
	}
	if r.Packets != 1000 || r.Verdicts[rig.XDPTX] != 1000 || r.Took <= 0 {
		t.Errorf("run: %+v", r)
	}
	all, err := b.Counters()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range all {
		want := map[string]uint64{"steer": 1000, "stickiness_recovered": 1}[c.Name]
		if c.Value != want {
			t.Errorf("counter %s: %d, want %d", c.Name, c.Value, want)
		}
	}
	if n, err := b.Memory(); err != nil || n < 1<<20 {
		t.Errorf("tables: %d bytes, %v", n, err)
	}
	d.Flows = 2 // the second is unknown
	if _, err := b.Run(cpu, 1000, d); err != nil {
		t.Fatal(err)
	}
	after, _ := b.Counters()
	for i, c := range after {
		if c.Name == "recover" && (c.Value-all[i].Value < 400 || c.Value-all[i].Value > 600) {
			t.Errorf("of random flows among two, the unknown one had %d of 1000 packets", c.Value)
		}
	}
	for late := time.Now().Add(2 * time.Minute); r.Statistics; time.Sleep(100 * time.Millisecond) { // others may have them on
		if r, err = b.Run(cpu, 1000, d); err != nil || time.Now().After(late) {
			t.Fatalf("run: %+v, %v, want none with statistics", r, err)
		}
	}
}

// TestBenchSteps: the packets of a connection follow each other, each connection is
// another flow, and a step may be ahead of the others.
func TestBenchSteps(t *testing.T) {
	b, cpu, data := steered(t)
	p := rig.Outward(rig.HuntPort, wire.ACK)
	p.Payload = make([]byte, 100)
	signal := bench.Step{Frame: rig.SignalFrom(1, p, wire.CreateStickiness, wire.Generation(rig.ClientISN)), Address: 92, Port: 96, Ahead: 2}
	answer := data.Step
	answer.Frame = append(answer.Frame, make([]byte, len(signal.Frame)-len(answer.Frame))...)
	answer.Times = 3
	d := &bench.Drill{Step: signal, After: []bench.Step{answer}, First: data.First + 1, Changed: 64}
	before, err := b.Counters()
	if err != nil {
		t.Fatal(err)
	}
	if r, err := b.Run(cpu, 1000, d); err != nil || d.Packets() != 4 || r.Verdicts[rig.XDPTX] != 1000 {
		t.Fatalf("run of connections of %d packets: %+v, %v", d.Packets(), r, err)
	}
	after, err := b.Counters()
	if err != nil {
		t.Fatal(err)
	}
	for i, c := range after { // the signals about the first two connections went before
		want := map[string]uint64{"stickiness_recovered": 250, "steer": 744, "recover": 6}[c.Name]
		if got := c.Value - before[i].Value; got != want {
			t.Errorf("counter %s moved by %d, want %d", c.Name, got, want)
		}
	}
}

// TestBenchStatistics: statistics take longer than some programs, so a run with
// them is marked.
func TestBenchStatistics(t *testing.T) {
	b, cpu, d := steered(t)
	on, err := ebpf.EnableStats(uint32(unix.BPF_STATS_RUN_TIME))
	if err != nil {
		t.Fatal(err)
	}
	defer on.Close()
	if r, err := b.Run(cpu, 1000, d); err != nil || !r.Statistics {
		t.Errorf("run with statistics: %+v, %v", r, err)
	}
}

// TestBenchMistakes: a bench that measures another path is an error.
func TestBenchMistakes(t *testing.T) {
	b, cpu, good := steered(t)
	for _, c := range []struct {
		label  string
		change func(*bench.Drill)
		cpu    int
		want   string
	}{
		{"the Ethernet header stays spoilt", func(d *bench.Drill) { d.Changed = 0 }, cpu, "came back as"},
		{"a short frame", func(d *bench.Drill) { d.Frame = d.Frame[:100] }, cpu, "a frame of 100 bytes"},
		{"a long frame", func(d *bench.Drill) { d.Frame = make([]byte, 300) }, cpu, "a frame of 300 bytes"},
		{"steps of unlike frames", func(d *bench.Drill) { d.After = []bench.Step{{Frame: make([]byte, 200)}} }, cpu, "a frame of 200 bytes; want 8 steps"},
		{"nine steps", func(d *bench.Drill) { d.After = slices.Repeat([]bench.Step{d.Step}, 8) }, cpu, "step 9 has"},
		{"another CPU", func(d *bench.Drill) {}, 0, "not pinned to CPU 0"},
	} {
		if c.cpu != cpu && runtime.NumCPU() < 2 {
			continue
		}
		d := *good
		c.change(&d)
		if _, err := b.Run(c.cpu, 1000, &d); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", c.label, err)
		}
	}
}

// TestBenchShips: the program's code stands in the bench as it is in the object, and so do those
// of the programs for signals and for new flows of clients.
func TestBenchShips(t *testing.T) {
	rig.NeedRoot(t)
	b, err := bench.NewEmpty(0)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	for _, c := range []struct {
		name, signals, kept string
		load                func() (*ebpf.CollectionSpec, error)
		calls               []string
	}{
		{objects.LBProgLb, objects.LBProgLbSignal, objects.LBProgLbKept, objects.LoadLB, []string{"lb", "lb_signal", "lb_kept"}},
		{objects.AgentProgAgentIn, objects.AgentProgAgentIn, objects.AgentProgAgentIn, objects.LoadAgent, []string{"agent_in", "agent_in", "agent_in"}},
		{objects.AgentProgAgentOut, objects.AgentProgAgentOut, objects.AgentProgAgentOut, objects.LoadAgent, []string{"agent_out"}},
	} {
		spec, err := c.load()
		if err != nil {
			t.Fatal(err)
		}
		p, signals, kept := spec.Programs[c.name], spec.Programs[c.signals].Copy(), spec.Programs[c.kept].Copy()
		before := p.Copy().Instructions
		if err := b.Surround(p, signals, kept); err != nil {
			t.Fatal(err)
		}
		around := slices.IndexFunc(p.Instructions, func(in asm.Instruction) bool { return in.Symbol() == c.name })
		if around < 20 || around > 400 {
			t.Errorf("%s: %d instructions are around it", c.name, around)
		}
		var calls []string
		for _, in := range p.Instructions[:around] {
			if in.IsFunctionCall() {
				calls = append(calls, in.Reference())
			}
		}
		if !slices.Equal(calls, c.calls) {
			t.Errorf("%s: the bench calls %v, want %v", c.name, calls, c.calls)
		}
		holds(t, p.Instructions, before)
		holds(t, p.Instructions, signals.Instructions)
		holds(t, p.Instructions, kept.Instructions)
	}
}

// holds: each function of a program stands somewhere in the bench.
func holds(t *testing.T, all, program asm.Instructions) {
	t.Helper()
	at := 0
	for i, in := range program {
		if in.Symbol() != "" {
			at = slices.IndexFunc(all, func(other asm.Instruction) bool { return other.Symbol() == in.Symbol() }) - i
		}
		if got := all[at+i]; got.OpCode != in.OpCode || got.Constant != in.Constant || got.Reference() != in.Reference() {
			t.Errorf("%s: instruction %d is %v, and was %v", program.Name(), i, got, in)
			return
		}
	}
}
