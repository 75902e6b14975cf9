package oracle

import (
	"encoding/binary"
	"net/netip"

	"proffer/policy"
	"proffer/topo"
)

// kind is a load balancer's class of a packet.
type kind uint8

const (
	other kind = iota
	tcp
	udp
	tooBig // ICMP: a packet of the flow was too big for a link
	echo   // ICMP echo request
)

// upper holds the facts of the header behind the IP header. The flow is written as if
// the packet went inward.
type upper struct {
	kind   kind
	flow   policy.Flow
	ports  bool   // there are some, and they could be read
	bytes  int    // of options before the header
	quotes int    // of options in a packet that it quotes
	hidden Reason // why no header could be found
	cut    bool   // too little is there to read them
	padded bool   // unless the link's padding is read for them
	broken bool   // an ICMP error with a useless quote
	bad    Reason // of a header with readable ports
	seq    uint32
	ack    uint32
	flags  byte // of TCP
	data   int  // bytes of TCP
	mtu    uint32
}

// TCP's flags (RFC 9293 §3.1).
const (
	flagFIN = 1
	flagSYN = 2
	flagRST = 4
	flagACK = 16
)

// opens: a SYN that asks for a connection.
func (u upper) opens() bool {
	return u.kind == tcp && u.flags&(flagSYN|flagACK|flagRST|flagFIN) == flagSYN
}

func (u upper) vip() topo.VIP {
	return topo.VIP{Addr: u.flow.VIP.Addr(), Port: u.flow.VIP.Port(), Protocol: u.flow.Protocol}
}

// turned is the same packet read as going outward.
func (u upper) turned() upper {
	u.flow.Client, u.flow.VIP = u.flow.VIP, u.flow.Client
	return u
}

func parseUpper(p ip) upper {
	u := upper{flow: flowOf(p.src, 0, p.dst, 0, topo.TCP)}
	p, bytes, hidden := p.bare()
	switch {
	case hidden != "":
		u.hidden = hidden
	case p.next == nextTCP:
		u = parseTCP(p)
	case p.next == nextUDP:
		u = parseUDP(p)
	case p.next == nextICMP6 && p.six:
		u = parseICMP(p, 128, 2, 40)
	case p.next == nextICMP4 && !p.six:
		u = parseICMP(p, 8, 3, 20)
	}
	u.bytes = bytes
	return u
}

func flowOf(client netip.Addr, clientPort uint16, vip netip.Addr, port uint16, protocol topo.Protocol) policy.Flow {
	return policy.Flow{
		Client: netip.AddrPortFrom(client, clientPort), VIP: netip.AddrPortFrom(vip, port), Protocol: protocol,
	}
}

// parseTCP: RFC 9293 §3.1.
func parseTCP(p ip) upper {
	u, b := upper{kind: tcp}, p.payload
	if len(b) < 4 {
		u.cut, u.padded = true, len(b)+len(p.trailer) >= 4
		u.flow = flowOf(p.src, 0, p.dst, 0, topo.TCP)
		return u
	}
	u.ports = true
	u.flow = flowOf(p.src, binary.BigEndian.Uint16(b), p.dst, binary.BigEndian.Uint16(b[2:]), topo.TCP)
	if len(b) < 20 {
		u.bad = BadTransport
		return u
	}
	if offset := int(b[12]>>4) * 4; offset < 20 || p.whole && offset > len(b) {
		u.bad = BadTransport
		return u
	}
	u.seq, u.ack = binary.BigEndian.Uint32(b[4:]), binary.BigEndian.Uint32(b[8:])
	u.flags = b[13]
	u.data = len(b) - int(b[12]>>4)*4
	return u
}

// parseUDP: RFC 768.
func parseUDP(p ip) upper {
	u, b := upper{kind: udp}, p.payload
	if len(b) < 8 {
		u.cut, u.padded = true, len(b)+len(p.trailer) >= 8
		u.flow = flowOf(p.src, 0, p.dst, 0, topo.UDP)
		return u
	}
	u.ports = true
	u.flow = flowOf(p.src, binary.BigEndian.Uint16(b), p.dst, binary.BigEndian.Uint16(b[2:]), topo.UDP)
	if n := int(binary.BigEndian.Uint16(b[4:])); n < 8 || p.whole && n > len(b) {
		u.bad = BadTransport
	}
	return u
}

// parseICMP: RFC 4443 §3.2 and §4.1, RFC 792. The quoted packet went the other way.
func parseICMP(p ip, echoRequest, unreachable byte, header int) upper {
	u := upper{flow: flowOf(p.src, 0, p.dst, 0, topo.TCP)}
	b := p.payload
	if len(b) < 8 {
		u.cut, u.padded = true, len(b)+len(p.trailer) >= 8
		return u
	}
	if b[0] == echoRequest {
		u.kind = echo
	}
	fragmentationNeeded := p.six || b[1] == 4
	if b[0] != unreachable || !fragmentationNeeded {
		return u
	}
	u.broken = true
	q, ok := parseIP(b[8:])
	if !ok && len(b) >= 8+20 && !p.six && b[8]>>4 == 4 && b[8]&15 >= 5 { // its length field does not matter
		q, ok = ip{
			next: b[17], src: netip.AddrFrom4([4]byte(b[20:24])), dst: netip.AddrFrom4([4]byte(b[24:28])),
			rest: 4*int(b[8]&15) - 20,
		}, true
	}
	if !ok || q.six != p.six {
		return u
	}
	next, bytes, bad := behind(q.six, q.next, q.rest, b[8+header:], true)
	if bad != "" || bytes > 0 && !q.six && binary.BigEndian.Uint16(b[14:])&0x1fff != 0 {
		return u
	}
	u.quotes = bytes
	protocol, known := map[byte]topo.Protocol{nextTCP: topo.TCP, nextUDP: topo.UDP}[next]
	ports := b[8+header+bytes:]
	if !known || len(ports) < 4 {
		return u
	}
	u.kind, u.ports, u.broken = tooBig, true, false
	u.flow = flowOf(q.dst, binary.BigEndian.Uint16(ports[2:]), q.src, binary.BigEndian.Uint16(ports), protocol)
	u.mtu = binary.BigEndian.Uint32(b[4:])
	return u
}
