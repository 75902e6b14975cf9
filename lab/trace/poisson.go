// Package trace makes and reads the arrivals that drive a run. It is pure: the
// same seed gives the same arrivals to the testbed, to the simulator and to an
// exact replay, so that policies meet the very same requests.
package trace

import (
	"math"
	"math/rand/v2"
	"time"
)

// Arrival is a request: when it comes, counted from the start of the run, and
// how long one core that does nothing else would work on it.
type Arrival struct{ At, Service time.Duration }

// The two streams of a seed. They are separate so that another mean leaves every
// arrival in place, and another rate every service time: common random numbers,
// which make two runs comparable request by request.
const (
	arrivalStream = 1
	serviceStream = 2
)

// Poisson returns the first n arrivals of a Poisson process of rate per second,
// with exponential service times of the given mean. Another rate only stretches
// the instants, another mean only the services, and a longer trace begins with
// the shorter one. rate and mean must be positive.
func Poisson(seed uint64, n int, rate float64, mean time.Duration) []Arrival {
	gaps := rand.New(rand.NewPCG(seed, arrivalStream))
	services := rand.New(rand.NewPCG(seed, serviceStream))
	arrivals := make([]Arrival, n)
	at := 0.0 // mean gaps; summed before rounding, so that no rounding adds up
	for i := range arrivals {
		at += gaps.ExpFloat64()
		arrivals[i] = Arrival{
			At:      nanoseconds(at / rate * float64(time.Second)),
			Service: nanoseconds(services.ExpFloat64() * float64(mean)),
		}
	}
	return arrivals
}

func nanoseconds(x float64) time.Duration { return time.Duration(math.Round(x)) }
