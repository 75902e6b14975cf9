package edgesim

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"proffer/balancer"
	"proffer/weights"
)

// The twin makes all flows, then all packets, sorts them, and remembers every
// packet that a core ever had. It counts by looking at all of them again.

type twinPacket struct {
	at, born    int64
	class, flow int
}

// sending is a packet sent to a core, with the age of its flow.
type sending struct {
	at    int64
	class int
}

type twinJob struct{ comes, begins, leaves int64 }

type twin struct {
	farm    Farm
	server  []int // of each core
	jobs    [][]twinJob
	sent    [][][]sending // by core and service
	dropped uint64
	waits   []int64
	spare   []bool
	full    int // ticks, one after the other
	meter   *weights.Meter
	weigher balancer.Weigher // also for Static: a PID without gains
}

// twinTraffic is every packet until the end, in order.
func twinTraffic(traffic Traffic, seed uint64) (packets []twinPacket) {
	flow := 0
	for class, c := range traffic.Classes {
		rng := rand.New(rand.NewPCG(seed, uint64(classStream+class)))
		spread := rng.Float64()
		clock := float64(c.From)
		for n := 0; clock <= float64(traffic.For); n++ {
			length := math.MaxInt32
			switch {
			case n == c.Elephants && c.Elephants > 0:
				clock = math.Inf(1)
				continue
			case c.Elephants > 0:
				clock = float64(int64(c.From) + int64(c.Gap)*int64(n)/int64(c.Elephants))
			case c.Even:
				clock += float64(1 / c.PerSecond * 1e9)
			default:
				clock += float64(rng.ExpFloat64() / c.PerSecond * 1e9)
			}
			if c.Elephants == 0 {
				length = int(math.Round(c.Packets))
			}
			if c.Tail > 0 {
				_, spread = math.Modf(spread + golden)
				length = int(math.Round(c.Packets * (c.Tail - 1) / c.Tail * math.Pow(1-spread, -1/c.Tail)))
			}
			for i := range length {
				at := int64(clock) + int64(i)*int64(c.Gap)
				if at > int64(traffic.For) {
					break
				}
				packets = append(packets, twinPacket{at, int64(clock), class, flow})
			}
			flow++
		}
	}
	slices.SortStableFunc(packets, func(a, b twinPacket) int {
		if a.at != b.at {
			return int(a.at - b.at)
		}
		return a.class - b.class
	})
	return packets
}

func (w *twin) offer(core int, at int64, cold float64, count bool) {
	waiting, begins := 0, at
	for _, j := range w.jobs[core] {
		if j.leaves > at {
			waiting++
			begins = max(begins, j.leaves)
		}
	}
	cost := int64(cold)
	if waiting > 0 {
		cost = int64(cold * (1 - w.farm.Warm))
	}
	if waiting == w.farm.Ring {
		w.dropped++
		return
	}
	w.jobs[core] = append(w.jobs[core], twinJob{at, begins, begins + cost})
	if count {
		w.waits = append(w.waits, begins+cost-at)
	}
}

// busy is how long a core worked from one instant to another.
func (w *twin) busy(core int, from, to int64) (sum int64) {
	for _, j := range w.jobs[core] {
		sum += max(0, min(j.leaves, to)-max(j.begins, from))
	}
	return sum
}

func (w *twin) counts(until int64) [][]weights.Packets {
	counts := make([][]weights.Packets, len(w.sent))
	for core, services := range w.sent {
		for _, packets := range services {
			var p weights.Packets
			for _, s := range packets {
				if s.at < until {
					p[s.class]++
				}
			}
			counts[core] = append(counts[core], p)
		}
	}
	return counts
}

// play is Run for Model and Static.
func (w *twin) play(p Policy, traffic Traffic, seed uint64) (samples []Sample, offered int) {
	for i, s := range w.farm.Servers {
		w.spare = append(w.spare, s.Spare)
		for range s.Cores {
			w.server = append(w.server, i)
			w.jobs = append(w.jobs, nil)
			w.sent = append(w.sent, make([][]sending, len(s.Cost)))
		}
	}
	w.meter, w.weigher = weights.NewMeter(w.farm.calibrate(seed)), weights.NewPID(len(w.server), p.PID)
	if p.Learns {
		w.weigher = weights.NewLeveller(len(w.server))
	}
	for core, server := range w.server {
		if w.spare[server] {
			w.weigher.Leave(core)
		}
	}
	turns := newTurn(w.weigher.Weights(0)) // which a weigher changes in place
	costs := rand.New(rand.NewPCG(seed, costStream))
	homes := map[int]int{}
	tick := int64(Period)
	packets := twinTraffic(traffic, seed)
	for _, packet := range append(packets, twinPacket{at: int64(traffic.For) + 1}) {
		for ; tick <= min(packet.at, int64(traffic.For)); tick += int64(Period) {
			samples = append(samples, w.tick(tick))
		}
		if packet.at > int64(traffic.For) {
			break
		}
		core, known := homes[packet.flow]
		if !known {
			core = turns.next()
			homes[packet.flow] = core
		}
		service := traffic.Classes[packet.class].Service
		w.sent[core][service] = append(w.sent[core][service], sending{packet.at, weights.AgeClass(time.Duration(packet.at - packet.born))})
		cost := float64(w.farm.Servers[w.server[core]].Cost[service]) * (1 + w.farm.Jitter*(2*costs.Float64()-1))
		w.offer(core, packet.at, cost, packet.at >= int64(traffic.WarmUp))
	}
	return samples, len(packets)
}

func (w *twin) tick(now int64) Sample {
	// What comes at the very instant of a tick comes after it.
	at := time.Duration(now)
	w.meter.Read(at, w.counts(now))
	var loads []float64
	for core := range w.server {
		s := w.meter.Sample(core)
		loads = append(loads, s.Value)
		w.weigher.Observe(at, s)
	}
	s := Sample{At: at, Predicted: loads, Weights: slices.Clone(w.weigher.Weights(at))}
	sum, members := 0.0, 0.0
	for core, server := range w.server {
		s.Measured = append(s.Measured, float64(w.busy(core, now-int64(Period), now))/float64(Period))
		if !w.spare[server] {
			sum += loads[core]
			members++
		}
	}
	w.full++
	if sum/members <= w.farm.Overload {
		w.full = 0
	}
	if join := slices.Index(w.spare, true); join >= 0 && w.full >= 3 {
		w.spare[join] = false
		for core, server := range w.server {
			if server == join {
				w.weigher.Join(core)
			}
		}
	}
	return s
}

func TestTwin(t *testing.T) {
	f, traffic := mixed()
	for _, p := range policies() {
		if p.Kind == Monitor {
			continue
		}
		for seed := uint64(1); seed <= 3; seed++ {
			got := run(t, f, p, traffic, seed)
			w := &twin{farm: f}
			samples, offered := w.play(p, traffic, seed)
			if uint64(offered) != got.Offered || w.dropped != got.Dropped {
				t.Fatalf("%v (seed %d): twin has %d packets and drops %d, Run %d and %d", p, seed, offered, w.dropped, got.Offered, got.Dropped)
			}
			total := int64(0)
			for _, ns := range w.waits {
				total += ns
			}
			if want := time.Duration(total / int64(len(w.waits))); want != got.Latency {
				t.Errorf("%v (seed %d): latency %v, the twin's %v", p, seed, got.Latency, want)
			}
			for i, s := range samples {
				if !sameSample(s, got.Samples[i]) {
					t.Fatalf("%v (seed %d): tick %d\n got %v\nwant %v", p, seed, i, got.Samples[i], s)
				}
			}
		}
	}
}

func sameSample(a, b Sample) bool {
	near := func(x, y float64) bool { return math.Abs(x-y) < 1e-9 }
	return a.At == b.At && slices.EqualFunc(a.Predicted, b.Predicted, near) &&
		slices.EqualFunc(a.Measured, b.Measured, near) && slices.EqualFunc(a.Weights, b.Weights, near)
}
