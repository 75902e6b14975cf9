package topo

import (
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"net/netip"
	"strings"
)

// VXLANBytes are those of the headers of UDP and VXLAN, and of the Ethernet frame inside
// (RFC 7348 §5).
const VXLANBytes = 8 + 8 + 14

// VXLANPort is the destination port (RFC 7348 §5).
const VXLANPort = 4789

// Delivery is how a server gets its packets.
type Delivery uint8

// The deliveries. Without an agent the server's only software is its kernel.
const (
	ByAgent Delivery = iota
	ByDT6
	ByDX6
	ByDX4
	ByL2
	ByVXLAN
)

// DeliveryRow is all that Go code asks of a delivery.
type DeliveryRow struct {
	Name    string // as the configuration spells it
	Meaning string // one line, the schema's and the docs'

	SRv6 bool // packets go to a SID of the server's locator, else the server has an address
	Seg6 bool // the kernel ends that SID
	IPv6 bool // packets of these families
	IPv4 bool
	// Neighbour: the address is on the LB's own link.
	Neighbour bool
	// Tunnel: the packet travels in an Ethernet frame inside UDP.
	Tunnel bool
}

var deliveries = [...]DeliveryRow{
	ByAgent: {
		Name:    "agent",
		Meaning: "over SRv6 to Proffer's agent",
		SRv6:    true, IPv6: true, IPv4: true,
	},
	ByDT6: {
		Name:    "dt6",
		Meaning: "over SRv6 to the kernel's End.DT6, which delivers IPv6 to the VIP on the server's lo",
		SRv6:    true, Seg6: true, IPv6: true,
	},
	ByDX6: {
		Name:    "dx6",
		Meaning: "over SRv6 to the kernel's End.DX6, which forwards IPv6 to a host or container behind the server",
		SRv6:    true, Seg6: true, IPv6: true,
	},
	ByDX4: {
		Name:    "dx4",
		Meaning: "over SRv6 to the kernel's End.DX4, which sends IPv4 to the VIP on lo or behind the server",
		SRv6:    true, Seg6: true, IPv4: true,
	},
	ByL2: {
		Name:    "l2",
		Meaning: "to the server's link address, on the LB's own link (direct server return)",
		IPv6:    true, IPv4: true, Neighbour: true,
	},
	ByVXLAN: {
		Name:    "vxlan",
		Meaning: "in VXLAN, to a vxlan device of the server's kernel",
		IPv6:    true, IPv4: true, Tunnel: true,
	},
}

// Deliveries lists the deliveries.
func Deliveries() []Delivery { return listed[Delivery](len(deliveries)) }

func (d Delivery) Row() DeliveryRow { return deliveries[d] }
func (d Delivery) String() string   { return deliveries[d].Name }
func (d Delivery) Meaning() string  { return deliveries[d].Meaning }
func (d Delivery) SRv6() bool       { return deliveries[d].SRv6 }
func (d Delivery) Addressed() bool  { return !deliveries[d].SRv6 }
func (d Delivery) Tunnel() bool     { return deliveries[d].Tunnel }

// Takes reports whether a server gets packets for this address so.
func (d Delivery) Takes(vip netip.Addr) bool {
	if vip.Is4() {
		return deliveries[d].IPv4
	}
	return deliveries[d].IPv6
}

// EndsOther reports whether a server may have both, each in services of another family: its kernel
// has a SID for each.
func (d Delivery) EndsOther(o Delivery) bool {
	a, b := d.Row(), o.Row()
	return a.Seg6 && b.Seg6 && a.IPv6 != b.IPv6
}

// At is the address that identifies the server and leads to its next hop: the first of its
// locator, or its own.
func (s *Server) At() netip.Addr {
	if s.Locator.IsValid() {
		return s.Locator.Addr()
	}
	return s.Address
}

// Where is the server's locator or address, for people.
func (s *Server) Where() string {
	if s.Locator.IsValid() {
		return s.Locator.String()
	}
	return s.Address.String()
}

// ID is the server's identity in the data plane, as 8 bytes of an address: those of its locator,
// or a hash of its address below ::/8, where no locator is.
func (s *Server) ID() (id [8]byte) {
	if s.Locator.IsValid() {
		first := s.Locator.Addr().As16()
		return [8]byte(first[:8])
	}
	hash := fnv.New64a()
	at := s.Address.As16()
	hash.Write(at[:])
	binary.BigEndian.PutUint64(id[:], hash.Sum64()>>8|1)
	return id
}

// deliveriesOf counts the servers of each delivery: "2 by dt6, 1 by l2"; empty if all have agents.
func deliveriesOf(servers []Server) string {
	var counts [len(deliveries)]int
	for _, s := range servers {
		counts[s.Delivery]++
	}
	if counts[ByAgent] == len(servers) {
		return ""
	}
	var parts []string
	for d, n := range counts {
		if n > 0 {
			parts = append(parts, fmt.Sprintf("%d by %s", n, Delivery(d)))
		}
	}
	return strings.Join(parts, ", ")
}
