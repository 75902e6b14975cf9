package sim

var _ = Register(Family{
	Name: "ledp", Pairs: true, Sees: Reports,
	Names: []Spelling{
		{"ledp", "least expected delay in the same view: mean service time × queue factor, as guided's metric", ""},
		{"ledp2", "the same of two random servers", ""},
	},
	New: func(e *Engine, p Policy) any { return newViewed(e, p.TwoChoices, expectedDelay) },
})

// expectedDelay is the time that the server needs for one more request. A server without
// a request so far counts as fast, so that each is tried.
func expectedDelay(v view, s *Server) float64 {
	return max(1, v.service) * s.queueFactor(v.requests+1)
}
