package sim

import "math"

// gauge is a server's own mean service time, over the last completions.
type gauge struct {
	mean float64 // ns
	seen float64
}

const gaugeMemory = 32 // completions

func (g *gauge) add(ns float64) {
	g.seen = min(g.seen+1, gaugeMemory)
	g.mean += (ns - g.mean) / g.seen
}

// metric is the time that the server expects to need for one more request, as
// its report: mean service × queue factor, where n counts the new one
// (FIFO: 1 + max(0, n − k)/k; sharing: max(1, n/k)).
func (g *guided) metric(server int32) uint8 {
	factor := g.farm.Servers[server].queueFactor(float64(g.servers[server].taken + 1))
	return logarithm(g.gauges[server].mean * factor)
}

const noMetric = math.MaxUint8

// logarithm is a time as 8 steps an octave from 1 µs on: 8·log₂, rounded down.
func logarithm(ns float64) uint8 {
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
