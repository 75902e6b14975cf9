package oracle

import (
	"encoding/binary"
	"net/netip"
	"slices"
)

// tooBigFor is the error to the sender of p for a link of mtu bytes (RFC 4443
// §3.2, RFC 1191 §4), from the VIP. The whole quoted packet fits a minimal link,
// or is 64 bytes. False: there is not enough of it.
func tooBigFor(p ip, raw []byte, u upper, mtu int) ([]byte, bool) {
	lowest, header := 1280, 48
	if !p.six {
		lowest, header = 576, 28
	}
	quote := lowest - header
	if len(raw) < quote {
		quote = 64
	}
	if len(raw) < quote {
		return nil, false
	}
	mtu = min(max(mtu, lowest), 0xffff)
	icmp := binary.BigEndian.AppendUint32([]byte{2, 0, 0, 0}, uint32(mtu))
	if !p.six {
		icmp[0], icmp[1] = 3, 4
	}
	icmp = append(icmp, raw[:quote]...)
	return icmpFrom(u, p.six, icmp), true
}

// header4 is a fresh IPv4 header of a packet that may be fragmented.
func header4(from, to netip.Addr, next byte, length int) []byte {
	h := []byte{0x45, 0, 0, 0, 0, 0, 0, 0, 64, next, 0, 0}
	binary.BigEndian.PutUint16(h[2:], uint16(20+length))
	h = append(append(h, from.AsSlice()...), to.AsSlice()...)
	binary.BigEndian.PutUint16(h[10:], checksum(h))
	return h
}

// echoReply is the request with its direction turned and its type that of a
// reply (RFC 4443 §4.2, RFC 792); a checksum that was wrong stays wrong.
func echoReply(p ip, u upper) []byte {
	payload := slices.Clone(p.payload)
	body := payload[u.bytes:]
	check := binary.BigEndian.Uint16(body[2:])
	old := binary.BigEndian.Uint16(body)
	body[0] = 0
	if p.six {
		body[0] = 129
	}
	binary.BigEndian.PutUint16(body[2:], ^add(^check, ^old, binary.BigEndian.Uint16(body)))
	p.payload, p.hop = payload, 64
	p.src, p.dst = p.dst, p.src
	b := p.append(nil)
	if !p.six { // its addresses are exchanged, which changes no sum
		copy(b[12:16], p.src.AsSlice())
		copy(b[16:20], p.dst.AsSlice())
	}
	return append(b, p.trailer...)
}

// unreachableFor is the error to the sender of a datagram for a port that is not served (RFC
// 4443 §3.1, RFC 792), with the datagram's headers.
func unreachableFor(p ip, raw []byte, u upper) []byte {
	icmp := []byte{1, 4, 0, 0, 0, 0, 0, 0}
	if !p.six {
		icmp[0], icmp[1] = 3, 3
		return icmpFrom(u, p.six, append(icmp, raw[:20+u.bytes+8]...))
	}
	return icmpFrom(u, p.six, append(icmp, raw[:40+u.bytes+8]...))
}

// timeExceededFor is the error to the sender of a packet of which the hop limit ended, with as
// much of the packet as a minimal link carries.
func timeExceededFor(p ip, raw []byte, u upper) []byte {
	if p.six {
		return icmpFrom(u, true, append([]byte{3, 0, 0, 0, 0, 0, 0, 0}, raw[:min(p.length(), 1280-48)]...))
	}
	return icmpFrom(u, false, append([]byte{11, 0, 0, 0, 0, 0, 0, 0}, raw[:min(p.length(), 576-28)]...))
}

// icmpFrom is a message of the VIP to the client, with its checksum.
func icmpFrom(u upper, six bool, icmp []byte) []byte {
	from, to := u.flow.VIP.Addr(), u.flow.Client.Addr()
	if !six {
		binary.BigEndian.PutUint16(icmp[2:], checksum(icmp))
		return append(header4(from, to, nextICMP4, len(icmp)), icmp...)
	}
	binary.BigEndian.PutUint16(icmp[2:], checksum(pseudo(from, to, nextICMP6, len(icmp)), icmp))
	answer := ip{six: true, label: labelOf(u.flow), next: nextICMP6, hop: 64, src: from, dst: to, payload: icmp}
	return answer.append(nil)
}

// resetFor is the RST that refuses a segment (RFC 9293 §3.10.7.1).
func resetFor(u upper) []byte {
	length := u.data
	for _, flag := range []byte{flagSYN, flagFIN} {
		if u.flags&flag != 0 {
			length++
		}
	}
	seg := make([]byte, 20)
	binary.BigEndian.PutUint16(seg, u.flow.VIP.Port())
	binary.BigEndian.PutUint16(seg[2:], u.flow.Client.Port())
	seg[12], seg[13] = 5<<4, flagRST
	if u.flags&flagACK != 0 {
		binary.BigEndian.PutUint32(seg[4:], u.ack)
	} else {
		seg[13] |= flagACK
		binary.BigEndian.PutUint32(seg[8:], u.seq+uint32(length))
	}
	from, to := u.flow.VIP.Addr(), u.flow.Client.Addr()
	binary.BigEndian.PutUint16(seg[16:], checksum(pseudo(from, to, nextTCP, len(seg)), seg))
	if from.Is4() {
		return append(header4(from, to, nextTCP, len(seg)), seg...)
	}
	answer := ip{six: true, label: labelOf(u.flow), next: nextTCP, hop: 64, src: from, dst: to, payload: seg}
	return answer.append(nil)
}

// aboutOurs is a router's word that one of this node's outer packets was too big,
// handed on to the client (RFC 2473 §7.1). Other errors about them end here.
func (l *LB) aboutOurs(outer ip) Answer {
	b := append(slices.Clone(outer.payload), outer.trailer...)
	if len(b) < 8 || b[0] >= 128 {
		return pass(NotForUs)
	}
	mtu := int(binary.BigEndian.Uint32(b[4:]))
	quoted := b[8:]
	ours, ok := parseIPv6(quoted)
	if !ok || !l.Locator.Contains(ours.src) {
		return pass(NotForUs)
	}
	header := 40
	switch {
	case ours.next == nextIPv6 || ours.next == nextIPv4:
	case ours.next == nextRouting && len(quoted) >= 48 && quoted[42] == routingTypeSegment:
		header += 8 + 8*int(quoted[41])
	default: // the host's own
		return pass(NotForUs)
	}
	if b[0] != 2 {
		return drop(ErrorAboutOurs)
	}
	if len(quoted) < header || mtu <= header {
		return drop(BadTooBig)
	}
	p, ok := parseIP(quoted[header:])
	u := parseUpper(p)
	if !ok || !u.ports && !u.padded || l.service(u) == nil {
		return drop(BadTooBig)
	}
	if u.kind == tooBig {
		return drop(TooBig)
	}
	// A quote of a transport header that cannot be is no node's packet; a quote that
	// is cut short is.
	if u.bad != "" {
		return drop(BadTooBig)
	}
	mac, near := l.Neighbours.Lookup(u.flow.Client.Addr())
	if !near {
		return drop(NoNeighbour)
	}
	report, ok := tooBigFor(p, quoted[header:], u, mtu-header)
	if !ok {
		return drop(BadTooBig)
	}
	return l.send(mac, report, ReportedTooBig)
}
