package report

import (
	"net/netip"

	"proffer/topo"
	"proffer/wire"
)

// At is the address that the agent of a server is asked at.
func At(server netip.Prefix) netip.AddrPort { return netip.AddrPortFrom(wire.Own(server), Port) }

// Ask is a request of an LB to the agent of a server.
func Ask(lb *topo.Node, server netip.Prefix, vip topo.VIP, nonce uint64) []byte {
	key, id := Signing(lb.Keys, farmKey)
	m := Message{VIP: vip, Nonce: nonce, KeyID: id}
	return m.Encode(Way{lb.Locator, server}, key)
}

// Answered reads a datagram that an LB received from an address: the answer of the server with that
// locator. Whether it was asked for shows the nonce.
func Answered(lb *topo.Node, from netip.Addr, b []byte) (m Message, server netip.Prefix, ok bool) {
	server, own := ownOf(from)
	m, err := Parse(b)
	if err != nil || !own || !m.Answer || !believes(b, &m, Way{server, lb.Locator}, lb.Keys, masterOf(server)) {
		return Message{}, server, false
	}
	return m, server, true
}

// Asked reads a datagram that an agent received from an address: the request of the LB with that
// locator, in the node's domain.
func Asked(agent *topo.Node, from netip.Addr, b []byte) (m Message, lb netip.Prefix, ok bool) {
	lb, own := ownOf(from)
	m, err := Parse(b)
	if err != nil || !own || m.Answer || !inDomain(agent, from) || !believes(b, &m, Way{lb, agent.Locator}, agent.Keys, farmKey) {
		return Message{}, lb, false
	}
	return m, lb, true
}

// Reply is an agent's answer to a request.
func Reply(agent *topo.Node, lb netip.Prefix, answer Message) []byte {
	var key topo.Key
	key, answer.KeyID = Signing(agent.Keys, serverKey)
	answer.Answer = true
	return answer.Encode(Way{agent.Locator, lb}, key)
}

// ownOf is the locator of a node by its own address (wire.Own).
func ownOf(addr netip.Addr) (locator netip.Prefix, own bool) {
	addr = addr.WithZone("")
	locator = netip.PrefixFrom(addr, 64).Masked()
	return locator, addr.Is6() && !addr.Is4In6() && wire.Own(locator) == addr
}

func inDomain(n *topo.Node, addr netip.Addr) bool {
	for _, p := range n.Domain {
		if p.Contains(addr.WithZone("")) {
			return true
		}
	}
	return len(n.Domain) == 0
}
