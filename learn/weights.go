package learn

// Settings of a Weigher. The zero value of a field is no default: start from
// Paper.
type Settings struct {
	Mean  float64 // μ̃(0)
	Var   float64 // P(0)
	Noise float64 // R(0), the variance of a measurement
	Drift float64 // Q, what the truth may move by in a step
	Alpha float64 // how fast R follows the variance of the measurements; 0: R stays (HLB-FIX)
}

// Paper is what HLB §IV-B2 states (μ̃(0) = 0.5, α = 0.01) and, for what it leaves
// open, what the authors' simulator uses.
func Paper() Settings {
	return Settings{Mean: 0.5, Var: 100, Noise: 0.16, Drift: 1e-4, Alpha: 0.01}
}

// Weigher turns mean flow durations of servers into their weights, step by step.
// One goroutine owns it.
type Weigher struct {
	settings Settings
	noise    float64
	filters  []Kalman
	measured []float64 // z of the last step
	weights  []float64
	gain     float64
}

// NewWeigher starts with equal weights for n servers.
func NewWeigher(n int, s Settings) *Weigher {
	w := &Weigher{settings: s, noise: s.Noise,
		filters: make([]Kalman, n), measured: make([]float64, n), weights: make([]float64, n)}
	for i := range w.filters {
		w.filters[i] = Kalman{Mean: s.Mean, Var: s.Var}
		w.weights[i] = 1 / float64(n)
	}
	return w
}

// Step takes the mean duration of each server's flows, in any unit, 0 where
// nothing was seen, and returns the new weights, which sum to 1 and stay valid
// until the next Step. A server that was never seen measures as the average
// one: nothing tells it apart.
func (w *Weigher) Step(durations []float64) []float64 {
	mean := meanOfSeen(durations)
	if mean == 0 {
		return w.weights
	}
	for i, d := range durations {
		w.measured[i] = 1
		if d > 0 {
			w.measured[i] = d / mean
		}
		w.gain = w.filters[i].Update(w.measured[i], w.noise, w.settings.Drift)
	}
	a := w.settings.Alpha
	w.noise = float64((1-a)*w.noise) + float64(a*variance(w.measured))
	w.softmax()
	return w.weights
}

// Gain is the Kalman gain of the last step, Noise the R of the next (HLB
// Figure 18b).
func (w *Weigher) Gain() float64  { return w.gain }
func (w *Weigher) Noise() float64 { return w.noise }

// Weights are those of the last Step.
func (w *Weigher) Weights() []float64 { return w.weights }

func (w *Weigher) softmax() {
	sum := 0.0
	for i := range w.filters {
		w.weights[i] = Exp(-w.filters[i].Mean)
		sum += w.weights[i]
	}
	for i := range w.weights {
		w.weights[i] /= sum
	}
}

// Score is what a new flow compares servers by (HLB §IV-B3), the least wins:
// flows is the number of those in progress, the new one not counted.
func Score(flows int, weight float64) float64 { return float64(flows+1) / weight }

func meanOfSeen(x []float64) float64 {
	sum, seen := 0.0, 0
	for _, v := range x {
		if v > 0 {
			sum += v
			seen++
		}
	}
	return sum / float64(max(1, seen))
}

func variance(x []float64) float64 {
	mean := 0.0
	for _, v := range x {
		mean += v
	}
	mean /= float64(len(x))
	sum := 0.0
	for _, v := range x {
		d := v - mean
		sum += float64(d * d)
	}
	return sum / float64(len(x))
}
