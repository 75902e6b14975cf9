package sim

import (
	"math/rand/v2"
	"time"
)

// Flood is SYNs with forged sources, a Poisson process beside the requests until
// the last of these has come. Such a flow never comes to life; an LB
// that keeps an entry for it forgets it after Expires. Servers answer it with a
// cookie, at no cost here. The zero value is none.
type Flood struct {
	Times   float64       // of the mean rate of the requests
	Expires time.Duration // the life of an embryonic entry of an LB
}

// forgery is the state of the flood.
type forgery struct {
	rng  *rand.Rand
	gap  float64 // ns, the mean time between two SYNs
	syns Slots[forged]
}

// forged is an entry of a forged SYN.
type forged struct{ lb, server int32 }

// armFlood begins the flood; a policy without entries does not feel it.
func (e *Engine) armFlood() {
	if e.Farm.Flood.Times == 0 || e.flooded == nil {
		return
	}
	rate := e.Farm.Flood.Times * e.Work.Arrivals.MeanRate()
	e.forgery = forgery{rng: rand.New(rand.NewPCG(e.Result.Seed, FloodStream)), gap: float64(time.Second) / rate}
	e.nextSpoof()
}

func (e *Engine) nextSpoof() {
	e.Hops.Push(e.Instant+int64(e.forgery.rng.ExpFloat64()*e.forgery.gap), spoofing, 0)
}

// spoof is a forged SYN at the LB that the edge router gives it to.
func (e *Engine) spoof() {
	if e.coming == Never {
		return
	}
	lb := int32(Below(e.forgery.rng.Uint64(), e.Farm.LBs))
	word := e.forgery.rng.Uint64()
	if e.dead == nil || !e.dead[lb] {
		i := e.forgery.syns.Take(forged{lb, e.flooded.Spoofed(lb, word)})
		e.Hops.Push(e.Instant+int64(e.Farm.Flood.Expires), expiring, i)
	}
	e.nextSpoof()
}

func (e *Engine) expire(i int32) {
	syn := e.forgery.syns.All[i]
	e.flooded.Expired(syn.lb, syn.server)
	e.forgery.syns.Give(i)
}
