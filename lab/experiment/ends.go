package experiment

import (
	"math/rand/v2"
	"net/netip"
)

// clientsFor is how many client addresses so many ends need.
func clientsFor(ends int) int { return (ends + ports - 1) / ports }

// randomEnds are n ends at the client, no two alike, their ports in an order by
// the seed: another seed gives other lists of candidates.
func randomEnds(seed uint64, addrs []netip.Addr, n int) []netip.AddrPort {
	order := rand.New(rand.NewPCG(seed, 0)).Perm(ports)
	ends := make([]netip.AddrPort, n)
	for i := range ends {
		ends[i] = netip.AddrPortFrom(addrs[i/ports], uint16(firstPort+order[i%ports]))
	}
	return ends
}
