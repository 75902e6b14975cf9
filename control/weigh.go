package control

import (
	"math"
	"slices"
	"time"

	"proffer/topo"
	"proffer/weights"
)

// Configured is the weigher of a service that keeps the weights of its
// configuration.
func Configured(svc *topo.Service) weights.Weigher {
	stated := make([]float64, len(svc.Servers))
	for i, s := range svc.Servers {
		stated[i] = float64(s.Weight)
	}
	return weights.NewStatic(stated)
}

// Weighed returns cfg with the weights that each service's weigher gives its
// servers at the monotonic time at. Earlier pools keep the weights with which
// their tables were built, so that flows are still found by them.
func Weighed(cfg *topo.LB, at time.Duration, weigher func(*topo.Service) weights.Weigher) *topo.LB {
	weighed := *cfg
	weighed.Services = slices.Clone(cfg.Services)
	for i := range weighed.Services {
		svc := &weighed.Services[i]
		svc.Servers = slices.Clone(svc.Servers)
		for j, w := range whole(weigher(svc).Weights(at)) {
			svc.Servers[j].Weight = w
		}
	}
	return &weighed
}

const maxWeight = math.MaxUint16 // of a server in a table

// whole keeps weights that are whole numbers as they are. It scales others until
// the largest is maxWeight, and keeps weights above 0 at 1 or more: only 0 drains.
func whole(w []float64) []int {
	scale := 1.0
	if slices.ContainsFunc(w, func(x float64) bool { return x != math.Trunc(x) || x > maxWeight }) {
		scale = maxWeight / slices.Max(w)
	}
	out := make([]int, len(w))
	for i, x := range w {
		if x > 0 {
			out[i] = max(1, int(math.Round(float64(x*scale))))
		}
	}
	return out
}
