package oracle

import (
	"encoding/binary"
	"slices"
)

// isLong: a packet that may leave as several, fragments or the segments that a link joined.
func (l *LB) isLong(p ip, u upper) bool {
	return u.kind != tooBig && (p.length() > l.MTU || !p.six && p.header[6]&0x40 == 0)
}

// leave passes a packet to the stack of this node, which sends it as several.
func (l *LB) leave(p ip) Answer {
	a := l.send(l.MAC, p.append(nil), TooBig)
	a.Frame = append(a.Frame, p.trailer...)
	a.Action = Deliver
	return a
}

// cutShort is the beginning of a TCP segment in IPv4, without FIN. Checksums that were wrong stay
// wrong by as much.
func cutShort(p ip, options int) ip {
	const kept, atFlags, atChecksum = 512, 13, 16
	front := p.payload[:options]
	p.payload = p.payload[options:]
	header, before := append([]byte(nil), p.header...), p.payload
	payload := append([]byte(nil), before[:kept]...)
	payload[atFlags] &^= flagFIN
	cover := func(b []byte) uint16 {
		b = append([]byte(nil), b...)
		clear(b[atChecksum : atChecksum+2])
		return checksum(pseudo(p.src, p.dst, p.next, len(b)), b)
	}
	wrong := add(binary.BigEndian.Uint16(before[atChecksum:]), ^cover(before))
	binary.BigEndian.PutUint16(payload[atChecksum:], add(cover(payload), wrong))
	was := binary.BigEndian.Uint16(header[2:])
	now := uint16(len(header) + options + kept)
	binary.BigEndian.PutUint16(header[2:], now)
	check := binary.BigEndian.Uint16(header[10:])
	binary.BigEndian.PutUint16(header[10:], ^add(^check, ^was, now))
	p.header, p.payload, p.trailer = header, slices.Concat(front, payload), nil
	return p
}
