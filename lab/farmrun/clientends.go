package farmrun

import (
	"math/rand/v2"
	"net/netip"

	"proffer/lab/trace"
	"proffer/lab/traffic"
)

// The ports of a client address that connections come from.
const (
	FirstPort = 1024
	Ports     = 64000
)

// ClientsFor is how many client addresses so many ends need.
func ClientsFor(ends int) int { return (ends + Ports - 1) / Ports }

// RandomEnds are n ends at the client, no two alike, their ports in an order by
// the seed: another seed gives other lists of candidates.
func RandomEnds(seed uint64, addrs []netip.Addr, n int) []netip.AddrPort {
	order := rand.New(rand.NewPCG(seed, 0)).Perm(Ports)
	ends := make([]netip.AddrPort, n)
	for i := range ends {
		ends[i] = netip.AddrPortFrom(addrs[i/Ports], uint16(FirstPort+order[i%Ports]))
	}
	return ends
}

// Requests are the arrivals as requests of these clients, each from an end of its own.
func Requests(arrivals []trace.Arrival, clients []netip.Addr) []traffic.Request {
	requests := make([]traffic.Request, len(arrivals))
	for i, a := range arrivals {
		from := netip.AddrPortFrom(clients[i/Ports], uint16(FirstPort+i%Ports))
		requests[i] = traffic.Request{At: a.At, Service: a.Service, From: from}
	}
	return requests
}

// FromPorts are n ends of one address.
func FromPorts(addr netip.Addr, n int) []netip.AddrPort {
	ends := make([]netip.AddrPort, n)
	for i := range ends {
		ends[i] = netip.AddrPortFrom(addr, uint16(FirstPort+i))
	}
	return ends
}
