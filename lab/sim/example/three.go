// Command three is a policy of one's own in a module of its own, compared with
// those of Proffer by the simulator's own command line:
//
//	go run . --farm B --policies three,jsq2,jsq --rho 0.9
package main

import (
	"os"

	"proffer/lab/sim"
	"proffer/lab/study"
)

var _ = sim.Register(sim.Family{
	Name:  "three",
	Sees:  sim.Everything,
	Names: []sim.Spelling{{Name: "three", Means: "the fewest requests of three random servers", Drawn: "green dashed"}},
	New:   func(e *sim.Engine, _ sim.Policy) any { return three{e} },
})

// three is jsq of three random servers.
type three struct{ *sim.Engine }

func (p three) Choose(_ int32, r *sim.Request) int32 {
	var list [3]int32
	candidates := list[:p.Draw(list[:], r)]
	best := candidates[0]
	for _, server := range candidates[1:] {
		if p.Assigned(server) < p.Assigned(best) {
			best = server
		}
	}
	return best
}

func main() { os.Exit(study.Main(os.Args[1:], os.Stdout, os.Stderr)) }
