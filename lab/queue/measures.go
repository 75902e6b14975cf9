package queue

// Passed is the share of flows that the first candidate passes on: s_c (5). 0 for
// Single, which asks one server only.
func (m *Model) Passed() float64 { return m.passed }

// Mean is the mean response time (6), delay included (7). Little's law over the
// sums of (3) and (4): all terms are positive, where (6) is 0/0 at λ(1 + s_c) = 1.
func (m *Model) Mean() float64 { return m.flows()/m.lambda + m.delay*m.passed }

// flows is E(X)/N of §V-B: Σ s_n over n ≥ 1.
func (m *Model) flows() float64 {
	sum := m.s[m.c()] * m.ratio / (1 - m.ratio)
	for _, s := range m.s[1:] {
		sum += s
	}
	return sum
}

// Fairness is Jain's index of the servers' flows, E(X)² / E(X²) (§V-D).
func (m *Model) Fairness() float64 {
	x := m.flows()
	return x * x / m.squares()
}

// squares is E(X²)/N of §V-D: Σ (2n − 1) s_n over n ≥ 1.
func (m *Model) squares() float64 {
	r, c := m.ratio, float64(m.c())
	sum := m.s[m.c()] * r * ((2*c+1)/(1-r) + 2*r/((1-r)*(1-r)))
	for n, s := range m.s[1:] {
		sum += float64(2*n+1) * s
	}
	return sum
}

// Wrongful is the share of flows that a first candidate with n ≥ c flows passes on
// to one with more than n (8). 0 for Single.
func (m *Model) Wrongful() float64 {
	return m.passed * m.passed * m.ratio / (1 + m.ratio)
}
