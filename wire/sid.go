package wire

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"net/netip"
	"strings"

	"proffer/policy"
)

// SID is a segment identifier (RFC 8986 §3.1): locator 64 bits, function 16, and an
// argument of 48.
type SID struct {
	Locator    netip.Prefix
	Function   Function
	Generation uint16 // of the connection; 0: none
	Flags      Flags
	KeyID      uint8  // of the tag in the sender's address; 0: untagged
	Report     uint16 // RecoverStickiness at an LB: where in the list to go on
}

// Flags say more about an offer.
type Flags uint8

func (f Flags) String() string {
	names := []struct {
		flag Flags
		name string
	}{{Retry, "retry"}, {Final, "final"}, {Held, "held"}, {ClientClosed, "client closed"}, {ServerClosed, "server closed"}}
	var set []string
	for _, n := range names {
		if f&n.flag != 0 {
			set = append(set, n.name)
		}
		f &^= n.flag
	}
	if f != 0 {
		set = append(set, fmt.Sprintf("%#02x", uint8(f)))
	}
	return cmp.Or(strings.Join(set, "+"), "none")
}

// Offsets in a SID.
const (
	atFunction   = 8
	atGeneration = 10
	atFlags      = 12
	atKeyID      = 13
	atReport     = 14
)

// Addr is the SID as an address.
func (s SID) Addr() netip.Addr {
	a := s.Locator.Addr().As16()
	binary.BigEndian.PutUint16(a[atFunction:], uint16(s.Function))
	binary.BigEndian.PutUint16(a[atGeneration:], s.Generation)
	a[atFlags], a[atKeyID] = uint8(s.Flags), s.KeyID
	binary.BigEndian.PutUint16(a[atReport:], s.Report)
	return netip.AddrFrom16(a)
}

// ParseSID takes an address apart. Every IPv6 address is some SID.
func ParseSID(addr netip.Addr) SID {
	a := addr.As16()
	return SID{
		Locator:    netip.PrefixFrom(addr.WithZone(""), 64).Masked(),
		Function:   Function(binary.BigEndian.Uint16(a[atFunction:])),
		Generation: binary.BigEndian.Uint16(a[atGeneration:]),
		Flags:      Flags(a[atFlags]),
		KeyID:      a[atKeyID],
		Report:     binary.BigEndian.Uint16(a[atReport:]),
	}
}

// Own is a node's own address, locator::1.
func Own(locator netip.Prefix) netip.Addr {
	return Tagged(locator, [8]byte{7: 1})
}

// Untagged is the sender's address of a flow's packets without a tag: the interface identifier
// is the flow label, so that a receiver's queues tell flows apart.
func Untagged(locator netip.Prefix, f policy.Flow) netip.Addr {
	return Tagged(locator, [8]byte(binary.BigEndian.AppendUint64(nil, uint64(FlowLabel(f)))))
}

// Tagged is a node's address with a tag for interface identifier.
func Tagged(locator netip.Prefix, tag [8]byte) netip.Addr {
	a := locator.Addr().As16()
	copy(a[8:], tag[:])
	return netip.AddrFrom16(a)
}
