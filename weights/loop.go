package weights

import "time"

// Form is how the terms of the controller are computed.
type Form int

const (
	// Literal is EdgeBalance §3 as printed:
	//
	//	err      = kP·(load − average)
	//	err_sum += kI·err·dt
	//	d_err    = kD·(prev_err − err)·dt
	//
	// I and D act on kP·error. The derivative has the wrong sign and is multiplied
	// by dt, where a derivative is divided; at 30 ms both together make it a
	// disturbance of a 267th of the error's change, and the gains of the paper
	// belong to this form.
	Literal Form = iota

	// True is the textbook's parallel form, in which I and D act on the error:
	//
	//	kP·e + kI·∫e dt + kD·de/dt,   e = load − average
	True
)

func (f Form) String() string {
	if f == True {
		return "true"
	}
	return "literal"
}

// Gains of a PID controller, and the form they belong to. The unit of an error is a whole core,
// that of a weight the average weight.
type Gains struct {
	Form       Form
	KP, KI, KD float64
}

// PublishedGains are the form and the gains of EdgeBalance §3, for a tick of 30 ms.
func PublishedGains() Gains { return Gains{Literal, 0.6, 0.5, 0.125} }

// TunedGains are gains for flows that last seconds, which the published gains set
// swinging. They damp swings that the published gains do not, and take five seconds to
// level an elephant where those take a quarter of a second. docs/design/edge.md has both.
func TunedGains() Gains { return Gains{True, 0.05, 0, 0.025} }

// longest is the longest time between two steps that a term is computed with: a
// clock that jumped, or a machine that was suspended, must not fill the integral.
const longest = time.Second

// loop is the controller of a core. Its zero state is that of a core about
// which nothing is known.
type loop struct {
	Gains
	sum  float64
	prev float64
}

// step returns diff_weight, the weight that the core has to lose, for the distance of its
// load from the average, dt after the last step.
func (p *loop) step(deviation float64, dt time.Duration) float64 {
	seconds := min(dt, longest).Seconds()
	if p.Form == True {
		p.sum += float64(p.KI * deviation * seconds)
		slope := float64(p.KD * (deviation - p.prev) / seconds)
		p.prev = deviation
		return float64(p.KP*deviation) + p.sum + slope
	}
	err := float64(p.KP * deviation)
	p.sum += float64(p.KI * err * seconds)
	slope := float64(p.KD * (p.prev - err) * seconds)
	p.prev = err
	return err + p.sum + slope
}
