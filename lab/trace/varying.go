package trace

import (
	"math/rand/v2"
	"time"
)

// Stretch is a time with one rate of arrivals, a second.
type Stretch struct {
	Lasting time.Duration
	Rate    float64
}

// Varying returns the arrivals of a Poisson process during stretches, in turn, with
// exponential service times of the given mean: Poisson's, with instants moved so that each
// stretch has its rate.
func Varying(seed uint64, stretches []Stretch, mean time.Duration) (arrivals []Arrival) {
	gaps := rand.New(rand.NewPCG(seed, arrivalStream))
	services := rand.New(rand.NewPCG(seed, serviceStream))
	at, began, passed := gaps.ExpFloat64(), time.Duration(0), 0.0 // in mean gaps: the next arrival, and all before a stretch
	for _, s := range stretches {
		for long := s.Rate * s.Lasting.Seconds(); ; at += gaps.ExpFloat64() {
			if at-passed >= long {
				passed += long
				break
			}
			arrivals = append(arrivals, Arrival{
				At:      began + nanoseconds((at-passed)/s.Rate*float64(time.Second)),
				Service: nanoseconds(services.ExpFloat64() * float64(mean)),
			})
		}
		began += s.Lasting
	}
	return arrivals
}
