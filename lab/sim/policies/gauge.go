package policies

import "math"

// Gauge is a server's own mean service time, over the last completions.
type Gauge struct {
	Mean float64 // ns
	Seen float64
}

const GaugeMemory = 32 // completions

func (g *Gauge) Add(ns float64) {
	g.Seen = min(g.Seen+1, GaugeMemory)
	g.Mean += (ns - g.Mean) / g.Seen
}

// metric is the time that the server expects to need for one more request, as
// its report: mean service × queue factor, where n counts the new one
// (FIFO: 1 + max(0, n − k)/k; sharing: max(1, n/k)).
func (g *Guided) metric(server int32) uint8 {
	factor := g.Farm.Servers[server].QueueFactor(float64(g.Servers[server].Taken + 1))
	return Logarithm(g.Gauges[server].Mean * factor)
}

const noMetric = math.MaxUint8

// Logarithm is a time as 8 steps an octave from 1 µs on: 8·log₂, rounded down.
func Logarithm(ns float64) uint8 {
	fraction, octave := math.Frexp(ns / 1000)
	step := 0
	for step < 7 && fraction >= eighths[step] {
		step++
	}
	return uint8(min(max(0, 8*(octave-1)+step), noMetric-1))
}

// eighths are 2^(i/8)/2 for i from 1 to 7.
var eighths = [7]float64{
	0.545253866332628, 0.594603557501361, 0.648419777325505, 0.707106781186548,
	0.771105412703970, 0.840896415253715, 0.917004043204671,
}

// sameClass is how many steps two metrics may differ by inside one class: three
// steps less is a factor of 2^(−3/8) = 0.77, under the 0.8 that makes a class.
const sameClass = 2
