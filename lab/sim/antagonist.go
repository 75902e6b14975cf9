package sim

import (
	"fmt"
	"math/rand/v2"
	"time"
)

// Antagonists are other work on every server, as a data centre has it (Prequal,
// NSDI 2024, §2): it takes a share of the server's speed, which is drawn again after a time
// of its own. The zero value is none.
type Antagonists struct {
	Every       time.Duration // mean of the exponential time between two draws; 0: no antagonists
	Idle        float64       // probability of a share of 0
	Least, Most float64       // else uniform from Least to Most
}

// mean is the share that is taken on average.
func (a Antagonists) mean() float64 {
	if a.Every == 0 {
		return 0
	}
	return (1 - a.Idle) * (a.Least + a.Most) / 2
}

func checkAntagonists(a Antagonists) string {
	return first(
		rule{a.Every < 0, fmt.Sprintf("a draw every %v", a.Every)},
		rule{!(a.Idle >= 0 && a.Idle <= 1), fmt.Sprintf("idle with probability %v: want 0 to 1", a.Idle)},
		rule{!(a.Least >= 0 && a.Least <= a.Most && a.Most <= 1-leastLeft),
			fmt.Sprintf("shares from %v to %v: want 0 ≤ least ≤ most ≤ %v", a.Least, a.Most, 1-leastLeft)},
	)
}

// rival is the state of the antagonists. Their stream is drawn in the order of
// time, so they are the same under every policy.
type rival struct {
	rng   *rand.Rand
	Share []float64 // of each server's speed; nil: no antagonists
}

func (e *Engine) armRivals() {
	if e.Farm.Antagonists.Every == 0 {
		return
	}
	e.Rival = rival{rand.New(rand.NewPCG(e.Result.Seed, RivalStream)), make([]float64, len(e.Servers))}
	for s := range e.Servers {
		e.disturb(int32(s))
	}
}

// disturb gives the antagonist of a server another share, until the next draw.
func (e *Engine) disturb(server int32) {
	a, rng := e.Farm.Antagonists, e.Rival.rng
	e.Rival.Share[server] = a.draw(rng)
	e.pace(server)
	e.Hops.Push(e.Instant+int64(rng.ExpFloat64()*float64(a.Every)), redrawing, server)
}

func (a Antagonists) draw(rng *rand.Rand) float64 {
	idle, share := rng.Float64() < a.Idle, rng.Float64()
	if idle {
		return 0
	}
	return a.Least + float64(share*(a.Most-a.Least))
}
