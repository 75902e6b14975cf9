package weights

import "time"

// Static returns the weights that a configuration states, whatever it observes.
type Static struct {
	stated  []float64
	weights []float64
}

// NewStatic has a weight a server, all servers being members.
func NewStatic(stated []float64) *Static {
	return &Static{stated: stated, weights: append([]float64(nil), stated...)}
}

// Observe ignores the sample.
func (s *Static) Observe(time.Duration, Sample) {}

// Weights are those stated, 0 for a server that has left.
func (s *Static) Weights(time.Duration) []float64 { return s.weights }

// Join gives a server its stated weight again.
func (s *Static) Join(server int) { s.weights[server] = s.stated[server] }

// Leave ends new flows for a server.
func (s *Static) Leave(server int) { s.weights[server] = 0 }
