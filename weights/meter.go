package weights

import "time"

// Costs of a packet, by core and service. They differ between servers, so each measures
// its own when it starts.
type Costs [][]Curve

// Meter predicts loads from packet counters (EdgeBalance §3):
//
//	Predict_CPU[core] = Σ over services of Cost[core][service] · Rate[core][service]
//
// Servers are not asked: their polling cores report 100 % at any load. Where the time of
// the functions alone is measured, as by the run time of BPF programs, Learn corrects the
// costs by it. The paper's <server i, core j> is a single index here.
type Meter struct {
	costs Costs
	fixed []bool // by service: Learn leaves its costs
	sent  [][]Packets
	rates [][]ByAge // packets a second, by core, service and age
	total []float64 // packets a second of each core
	fresh []float64 // packets a second of new flows, by service, of all cores
	loads []ByAge
	last  time.Duration
}

// NewMeter starts at time 0 with counters of zero.
func NewMeter(costs Costs) *Meter {
	n := len(costs)
	m := &Meter{costs: costs, sent: make([][]Packets, n), rates: make([][]ByAge, n), total: make([]float64, n), loads: make([]ByAge, n)}
	for i := range costs {
		m.sent[i], m.rates[i] = make([]Packets, len(costs[i])), make([]ByAge, len(costs[i]))
		m.fresh = make([]float64, len(costs[i]))
	}
	return m
}

// Fix has the costs of a service stay as they are, as they are stated and not measured.
func (m *Meter) Fix(service int) {
	m.fixed = append(m.fixed, make([]bool, max(0, service+1-len(m.fixed)))...)
	m.fixed[service] = true
}

func (m *Meter) isFixed(service int) bool { return service < len(m.fixed) && m.fixed[service] }

// SetCost gives a service another cost at a core.
func (m *Meter) SetCost(core, service int, c Curve) { m.costs[core][service] = c }

// Cost is that of a service at a core.
func (m *Meter) Cost(core, service int) Curve { return m.costs[core][service] }

// CostNow is the cost of a service's packets at a core, in ns, at the core's last rate.
func (m *Meter) CostNow(core, service int) float64 { return m.costs[core][service].At(m.total[core]) }

// Read takes the monotonic time and the packets sent so far to each core and service.
// Samples are of the loads since the last call. If time did not advance, the loads and
// the counters remembered stay as they are. A counter that went back was set to zero in
// between, so its whole value came since.
func (m *Meter) Read(now time.Duration, packets [][]Packets) {
	elapsed := now - m.last
	if elapsed <= 0 {
		return
	}
	m.last = now
	clear(m.fresh)
	for core, services := range packets {
		m.total[core] = 0
		for service := range services {
			m.count(core, service, &services[service], elapsed.Seconds())
		}
		m.predict(core)
	}
}

// count takes the rates of a core's service since the last call.
func (m *Meter) count(core, service int, packets *Packets, elapsed float64) {
	for class, n := range packets {
		before := m.sent[core][service][class]
		sent := n - before
		if n < before {
			sent = n
		}
		m.rates[core][service][class] = float64(sent) / elapsed
	}
	m.sent[core][service] = *packets
	m.total[core] += m.rates[core][service].Sum(0, Ages)
	m.fresh[service] += m.rates[core][service].Sum(0, 2*shortestHorizon) // older flows are no longer new
}

const nanosecond = 1e-9

// predict is the loads of a core by its rates.
func (m *Meter) predict(core int) {
	m.loads[core] = ByAge{}
	for service := range m.rates[core] {
		cost := m.costs[core][service].At(m.total[core]) * nanosecond
		for class, rate := range m.rates[core][service] {
			m.loads[core][class] += float64(cost * rate)
		}
	}
}

// Learn takes the load of a core since the last reading, as measured, and moves the costs
// of its services near the core's rate toward it, each as much as it has of the rate:
// normalised least mean squares. A core that is about full does less than it is sent, so
// it teaches nothing.
func (m *Meter) Learn(core int, measured float64) {
	const full, step = 0.95, 0.2
	if !(measured >= 0 && measured < full) { // nor does NaN
		return
	}
	const idle = 1e5 // packets a second, below which an error of measurement would weigh too much
	square := idle * idle
	for service := range m.rates[core] {
		rate := m.rates[core][service].Sum(0, Ages)
		square += float64(rate * rate)
	}
	off := measured - m.loads[core].Sum(0, Ages)
	for service := range m.rates[core] {
		if m.isFixed(service) {
			continue
		}
		rate := m.rates[core][service].Sum(0, Ages)
		m.costs[core][service].move(m.total[core], step*off*rate/square/nanosecond)
	}
}

// Sample is the load of a core since the last reading: 1 for a core that works all the
// time, more if more was sent than it can do.
func (m *Meter) Sample(core int) Sample {
	load := &m.loads[core]
	return Sample{Server: core, Value: load.Sum(0, Ages), ByAge: load, Cost: m.cost(core)}
}

// cost is a core's cost of the packets of new flows, beside the average core's.
func (m *Meter) cost(core int) float64 {
	own, all := 0.0, 0.0
	for i, services := range m.costs {
		for service := range services {
			work := float64(services[service].At(m.total[i]) * m.fresh[service])
			all += work
			if i == core {
				own += work
			}
		}
	}
	if all == 0 {
		return 1
	}
	return own * float64(len(m.costs)) / all
}
