package sim

import "time"

// Distribution is one of a positive time. The zero value is always 0.
type Distribution struct {
	Kind        Kind
	Mean, SD    time.Duration   // Mean: of every kind; SD: Lognormal and Hyperexponential only
	Shape       float64         // Pareto and Weibull
	Short, Long time.Duration   // Bimodal
	LongShare   float64         // Bimodal: of the times that are Long
	List        []time.Duration // Listed and Sampled
}

// Kind names a family of distributions.
type Kind uint8

const (
	DeterministicKind Kind = iota
	ExponentialKind
	LognormalKind
	HyperexponentialKind
	ListedKind
	ParetoKind
	WeibullKind
	BimodalKind
	SampledKind
)

// Exponential has the given mean.
func Exponential(mean time.Duration) Distribution {
	return Distribution{Kind: ExponentialKind, Mean: mean}
}

// Deterministic is always d.
func Deterministic(d time.Duration) Distribution { return Distribution{Mean: d} }

// Lognormal has the given mean and standard deviation.
func Lognormal(mean, sd time.Duration) Distribution {
	return Distribution{Kind: LognormalKind, Mean: mean, SD: sd}
}

// Hyperexponential mixes two exponentials with balanced means (each brings half
// of the work), so that mean and standard deviation, which must not be less than
// the mean, are the given ones.
func Hyperexponential(mean, sd time.Duration) Distribution {
	return Distribution{Kind: HyperexponentialKind, Mean: mean, SD: sd}
}

// Listed gives the times of the list in order, from the start again after its end.
func Listed(list []time.Duration) Distribution {
	return Distribution{Kind: ListedKind, List: list, Mean: meanTime(list)}
}

// Pareto has the given mean and a tail that falls as x^−shape: its variance is
// infinite up to shape 2, its mean up to shape 1, which is refused.
func Pareto(mean time.Duration, shape float64) Distribution {
	return Distribution{Kind: ParetoKind, Mean: mean, Shape: shape}
}

// Weibull has the given mean and a tail that falls as exp(−(x/scale)^shape):
// heavier than exponential below shape 1, lighter above.
func Weibull(mean time.Duration, shape float64) Distribution {
	return Distribution{Kind: WeibullKind, Mean: mean, Shape: shape}
}

// Bimodal is long with probability longShare, else short.
func Bimodal(short, long time.Duration, longShare float64) Distribution {
	mean := float64(float64(short)*(1-longShare)) + float64(float64(long)*longShare)
	return Distribution{Kind: BimodalKind, Mean: time.Duration(mean), Short: short, Long: long, LongShare: longShare}
}

// Sampled gives times of the list, each drawn at random and independently.
func Sampled(list []time.Duration) Distribution {
	return Distribution{Kind: SampledKind, List: list, Mean: meanTime(list)}
}

// meanTime sums up a list once: policies ask for the mean with every probe.
func meanTime(list []time.Duration) time.Duration {
	sum := 0.0
	for _, x := range list {
		sum += float64(x)
	}
	return time.Duration(sum / float64(max(1, len(list))))
}

func (d Distribution) None() bool { return d.Mean == 0 && len(d.List) == 0 }
