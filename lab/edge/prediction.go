package edge

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"golang.org/x/sys/unix"

	"proffer/control"
	"proffer/dataplane"
	"proffer/lab/farmrun"
	"proffer/lab/testbed"
	"proffer/lab/traffic"
	"proffer/lab/traffic/raw"
	"proffer/topo"
)

// Prediction is EdgeBalance's Figure 3 in the kernel: the load of a node's core as the LB predicts it
// from the packets that it counts, beside the run time of the core's programs as the kernel counts it.
// The node and the LB are real data planes in namespaces, with the daemons' own control; the core is
// CPU 0, and the traffic comes from CPU 1.
type Prediction struct {
	Chains   []PredictedChain
	Payloads []int         // bytes of a datagram
	Loads    []float64     // aimed at, 1 a whole core
	Settle   time.Duration // before each measurement, that of the costs, too
	For      time.Duration // of each
}

// PredictedChain is a service's functions under a name.
type PredictedChain struct {
	Name      string
	Functions []topo.Function
	Rate      float64 // packets a second at most, as the generator can send; 0: no limit
}

// PredictionRow is the loads of a core under steady traffic, on average.
type PredictionRow struct {
	Chain     string  `json:"chain"`
	Functions int     `json:"functions"`
	Payload   int     `json:"payload_bytes"`
	Rate      float64 `json:"packets_per_second"`
	Measured  float64 `json:"measured_load"`
	Spread    float64 `json:"measured_sd"`             // standard deviation over the ticks
	Started   float64 `json:"predicted_by_start_cost"` // by the costs that the node measured at its start
	Learned   float64 `json:"predicted_load"`          // as the LB predicts it: it learns from earlier loads
}

// ByStart and AsLearned are its two predictions.
func (r PredictionRow) ByStart() float64   { return r.Started }
func (r PredictionRow) AsLearned() float64 { return r.Learned }

// predictedNode is the number of the node, its only service is predictedService.
const predictedNode, predictedService = 0, 1

// PaperChains are chains of one to four functions that take 10 µs a packet together.
func PaperChains() []PredictedChain {
	const all = 10 * time.Microsecond
	cost := func(d time.Duration) topo.Function { return topo.Cost{Each: d} }
	firewall := topo.Firewall{Rules: []topo.Rule{{Allow: true, Source: testbed.EdgeClients}}}
	nat := topo.SourceNAT{Public4: testbed.EdgePublic, First: 2048, Ports: 8192}
	return []PredictedChain{
		{Name: "cost", Functions: []topo.Function{cost(all)}},
		{Name: "firewall, cost", Functions: []topo.Function{firewall, cost(all)}},
		{Name: "firewall, NAT, cost", Functions: []topo.Function{firewall, nat, cost(all)}},
		{Name: "cost, firewall, NAT, cost", Functions: []topo.Function{cost(all / 2), firewall, nat, cost(all / 2)}},
	}
}

// PaperPrediction is chains of one to four functions at 10 µs a packet, three sizes of packets, and loads
// of up to 80 %.
func PaperPrediction() Prediction {
	return Prediction{Chains: PaperChains(), Payloads: []int{18, 470, 1370}, Loads: []float64{0.2, 0.4, 0.6, 0.8}, Settle: time.Second, For: 1500 * time.Millisecond}
}

// QuickPrediction is a chain below a microsecond, where caches make the cost depend on the rate, at up to
// the rate that a generator on the other CPU can send.
func QuickPrediction() Prediction {
	const most = 200_000 // packets a second
	p := PaperPrediction()
	firewall := topo.Firewall{Rules: []topo.Rule{{Allow: true, Source: testbed.EdgeClients}}}
	p.Chains = []PredictedChain{{Name: "firewall", Functions: []topo.Function{firewall}, Rate: most}}
	p.Loads = []float64{0.1, 0.2, 0.5, 1}
	return p
}

// Predictions are the rows of a Prediction, and those without a result.
type Predictions struct {
	Rows      []PredictionRow
	Unclaimed []farmrun.Unclaimed
}

// Run measures every chain with every payload at every load.
func (p Prediction) Run(ctx context.Context, show func(farmrun.Step)) (all Predictions, err error) {
	farmrun.Prefer()
	bed, err := testbed.EdgeUp(ctx, 1)
	if err != nil {
		return all, err
	}
	defer func() { err = errors.Join(err, bed.Close()) }()
	stop, err := dataplane.CountRunTime()
	if err != nil {
		return all, err
	}
	defer func() { err = errors.Join(err, stop()) }()
	frames, err := newPredictionFrames(bed)
	if err != nil {
		return all, err
	}
	steps := farmrun.Pace{Began: time.Now(), Total: len(p.Chains) * len(p.Payloads) * len(p.Loads), Guess: p.Settle + p.For, Show: show}
	for _, c := range p.Chains {
		if err := all.chain(ctx, p, bed, frames, c, &steps); err != nil {
			return all, fmt.Errorf("chain of %s: %w", c.Name, err)
		}
	}
	return all, nil
}

func (all *Predictions) chain(ctx context.Context, p Prediction, bed *testbed.EdgeBed, frames *predictionFrames, c PredictedChain, steps *farmrun.Pace) (err error) {
	select { // the kernel frees the tables of the chain before it
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(p.Settle):
	}
	r, err := newPredicting(bed, c)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.close()) }()
	cost := r.costs[predictedService]
	for _, payload := range p.Payloads {
		for _, load := range p.Loads {
			rate := load * float64(time.Second) / cost[len(cost)-1]
			if c.Rate > 0 {
				rate = min(rate, c.Rate*load)
			}
			doing := fmt.Sprintf("%s, %d bytes, %.0f packets/s", c.Name, payload, rate)
			steps.Begin(doing)
			row, err := p.row(ctx, bed, r, frames.of(payload), rate)
			for try := 1; try < tries && errors.Is(err, traffic.ErrLate); try++ {
				row, err = p.row(ctx, bed, r, frames.of(payload), rate)
			}
			row.Chain, row.Functions, row.Payload = c.Name, len(c.Functions), payload
			switch {
			case errors.Is(err, traffic.ErrLate):
				all.Unclaimed = append(all.Unclaimed, farmrun.Unclaimed{Policy: "figure 3, " + doing, Reason: err.Error()})
			case err != nil:
				return err
			default:
				all.Rows = append(all.Rows, row)
			}
			steps.End(c.Name)
		}
	}
	return nil
}

// row has traffic of a rate, and averages the loads of its ticks.
func (p Prediction) row(ctx context.Context, bed *testbed.EdgeBed, r *predicting, frame func(int) []byte, rate float64) (row PredictionRow, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	sent := make(chan error, 1)
	go func() {
		enter := func() error {
			var last unix.CPUSet
			last.Set(1)
			return errors.Join(unix.SchedSetaffinity(0, &last), bed.Client.Enter())
		}
		_, err := raw.Forge{Interface: "lb", Frame: frame, Rate: rate, For: time.Hour, Enter: enter}.Run(ctx)
		sent <- err
	}()
	defer func() {
		cancel()
		if failed := <-sent; !errors.Is(failed, context.Canceled) {
			err = errors.Join(err, failed)
		}
	}()
	ticks := time.NewTicker(control.LevelEvery)
	defer ticks.Stop()
	begun, sum, from := farmrun.Monotonic{}.Now(), predictedLoads{}, time.Duration(0)
	for {
		select {
		case <-ctx.Done():
			return row, ctx.Err()
		case failed := <-sent:
			sent <- failed
			return row, failed
		case <-ticks.C:
		}
		l, err := r.tick()
		if err != nil {
			return row, err
		}
		now := farmrun.Monotonic{}.Now()
		switch {
		case from > 0:
			if sum.add(l); l.prompt && now-from >= p.For {
				return sum.row()
			}
			if now-from > 3*p.For {
				return row, fmt.Errorf("%w: counts that belong together could not be read within %v, so no result is claimed; free the machine", traffic.ErrLate, promptly)
			}
		case l.prompt && now-begun >= p.Settle:
			from = now
		}
	}
}

// promptly is how soon counts are read in turn, where a measurement begins and ends: this
// thread may have to wait for the core's.
const promptly = time.Millisecond

// tick has the LB predict the load since the last tick, and reads it from the kernel. The node reports
// to the LB as its daemon does; to the other control it reports its costs alone, so it learns nothing.
func (r *predicting) tick() (loads predictedTick, err error) {
	busy, err := r.read(&loads)
	if err != nil {
		return loads, err
	}
	for _, l := range []struct {
		levels *control.Levels
		learns bool
		load   *float64
	}{{r.learned, true, &loads.learned}, {r.started, false, &loads.started}} {
		now := farmrun.Monotonic{}.Now() // as the one before may have waited until weights are written
		if _, err := l.levels.Tick(now); err != nil {
			return loads, err
		}
		*l.load = l.levels.Levels()[0].Load
		requests, _ := l.levels.Ask(now, func() uint64 { return uint64(now) })
		answer := requests[0]
		answer.Answer = true
		if c, known := r.costs[answer.Service]; known {
			answer.Cost = &c
		}
		if l.learns {
			answer.At, answer.Busy = r.busyAt, busy
		}
		l.levels.Answer(now, 0, &answer)
	}
	return loads, nil
}

// read reads the core's run time and the packets since the last tick.
func (r *predicting) read(loads *predictedTick) (busy []time.Duration, err error) {
	now := farmrun.Monotonic{}.Now()
	if busy, err = r.node.Busy(); err != nil {
		return nil, err
	}
	core, err := r.node.Count(0, predictedService)
	if err != nil {
		return nil, err
	}
	sent, err := r.lb.Counts(predictedService)
	if err != nil {
		return nil, err
	}
	loads.prompt = farmrun.Monotonic{}.Now()-now < promptly
	packets := sent[0].Packets.Total()
	loads.elapsed, loads.measured = now-r.busyAt, float64(busy[0]-r.busy)/float64(now-r.busyAt)
	loads.packets, loads.seen = packets-r.packets, core.Packets-r.seen
	r.busyAt, r.busy, r.packets, r.seen = now, busy[0], packets, core.Packets
	return busy, nil
}

// predictedTick is the loads between two ticks.
type predictedTick struct {
	elapsed                    time.Duration
	measured, learned, started float64
	packets, seen              uint64 // by the LB, and by the core
	prompt                     bool   // all this was read promptly
}

// predictedLoads adds up ticks.
type predictedLoads struct {
	elapsed, measured, learned, started float64 // weighted by time
	squares                             float64 // of measured loads
	packets, seen                       uint64
}

func (s *predictedLoads) add(t predictedTick) {
	seconds := t.elapsed.Seconds()
	s.elapsed += seconds
	s.measured += seconds * t.measured
	s.squares += seconds * float64(t.measured*t.measured)
	s.learned += seconds * t.learned
	s.started += seconds * t.started
	s.packets += t.packets
	s.seen += t.seen
}

// row is the averages, if the core saw the packets, but for those on the way.
func (s *predictedLoads) row() (row PredictionRow, err error) {
	underway := promptly.Seconds() * float64(s.packets) / s.elapsed
	if float64(s.seen)+underway < (1-mostLost)*float64(s.packets) {
		return row, fmt.Errorf("%w: the core saw %d of %d packets, so no result is claimed; free the machine", traffic.ErrLate, s.seen, s.packets)
	}
	row = PredictionRow{Rate: float64(s.packets) / s.elapsed, Measured: s.measured / s.elapsed, Learned: s.learned / s.elapsed, Started: s.started / s.elapsed}
	row.Spread = math.Sqrt(max(0, s.squares/s.elapsed-float64(row.Measured*row.Measured)))
	return row, nil
}

// PredictionErrors are the distances of predictions from measured loads, in points: on average, and the
// greatest.
func PredictionErrors(rows []PredictionRow, predicted func(PredictionRow) float64) (mean, most float64) {
	for _, r := range rows {
		off := 100 * math.Abs(predicted(r)-r.Measured)
		mean += off / float64(len(rows))
		most = max(most, off)
	}
	return mean, most
}
