package plan

import (
	"net/netip"
	"slices"
	"strings"

	"proffer/topo"
)

// Offered is an earlier agent's state: the services that it offered, by the numbers of
// their loads, and the addresses of which it took fragments.
type Offered struct {
	Loads  map[topo.VIP]uint32
	Marked []netip.Addr
}

// Offers plans the way from an earlier agent's services to those wanted, which are the
// first steps, in their order. A service keeps its load; a new service gets a free load,
// as the old flows of a service that is gone may still count in its load.
func Offers(have Offered, want []topo.Offering) (steps []Step) {
	taken := map[uint32]bool{}
	for _, n := range have.Loads {
		taken[n] = true
	}
	wanted, marked, next := map[topo.VIP]bool{}, map[netip.Addr]bool{}, uint32(0)
	for _, s := range want {
		step := Step{Verb: KeepOffering, Service: s.Name, VIP: s.VIP}
		n, known := have.Loads[s.VIP]
		if !known {
			for taken[next] {
				next++
			}
			n, taken[next], step.Verb = next, true, AddOffering
		}
		step.Count = int(n)
		steps = append(steps, step)
		wanted[s.VIP], marked[s.VIP.Addr] = true, true
	}
	var gone []Step
	for vip := range have.Loads {
		if !wanted[vip] {
			gone = append(gone, Step{Verb: RemoveOffering, VIP: vip})
		}
	}
	for _, addr := range have.Marked {
		if !marked[addr] {
			gone = append(gone, mark(UnmarkVIP, addr, ""))
		}
	}
	slices.SortFunc(gone, func(a, b Step) int { return strings.Compare(a.String(), b.String()) })
	return append(steps, gone...)
}
