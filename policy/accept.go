package policy

import (
	"math"

	"proffer/topo"
)

// Acceptor decides on the offers that an agent could pass on. Twin of
// bpf/agent/accept/accept.h.
type Acceptor struct {
	Acceptance topo.Acceptance
	Threshold  uint32  // c: an offer is accepted while busy < c
	Window     uint32  // Dynamic: offers a window
	Epsilon    float64 // Dynamic: half the band around ½ in which c stays
	Workers    uint32  // Dynamic: n, the largest c

	attempts, accepted uint32
}

// Offer answers an offer that meets a server with `busy` requests. Dynamic
// adapts its threshold first when the offer completes a window, and counts its
// own answer into the next (6LB Algorithm 2).
func (a *Acceptor) Offer(busy uint32) bool {
	return rules[a.Acceptance](a, busy)
}

var rules = [...]func(a *Acceptor, busy uint32) bool{
	topo.Always:  func(*Acceptor, uint32) bool { return true },
	topo.Static:  func(a *Acceptor, busy uint32) bool { return busy < a.Threshold },
	topo.Dynamic: (*Acceptor).dynamic,
}

func (a *Acceptor) dynamic(busy uint32) bool {
	if a.attempts++; a.attempts >= a.Window {
		a.adapt()
	}
	if busy >= a.Threshold {
		return false
	}
	a.accepted++
	return true
}

// adapt moves the threshold by 1 if the share of acceptances left ½ ± ε, in
// whole millionths as the data plane counts.
func (a *Acceptor) adapt() {
	ppm := uint64(math.Round(a.Epsilon * 1e6))
	share := uint64(a.accepted) * 1e6
	switch {
	case share < (500_000-ppm)*uint64(a.Window) && a.Threshold < a.Workers:
		a.Threshold++
	case share > (500_000+ppm)*uint64(a.Window) && a.Threshold > 0:
		a.Threshold--
	}
	a.attempts, a.accepted = 0, 0
}
