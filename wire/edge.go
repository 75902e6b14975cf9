package wire

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"

	"proffer/topo"
)

// Instance is the VNI of a packet between an edge LB and a datapath node
// (docs/design/edge-wire.md).
type Instance struct {
	Update                bool // from a node, behind the chain
	Server, Core, Service int
}

// VNI is the instance as VXLAN carries it, in 24 bits.
func (i Instance) VNI() uint32 {
	vni := uint32(i.Server)<<EdgeServerShift | uint32(i.Core)<<EdgeCoreShift | uint32(i.Service)
	if i.Update {
		vni |= EdgeUpdate
	}
	return vni
}

// ParseInstance undoes VNI.
func ParseInstance(vni uint32) Instance {
	part := func(shift, bits uint) int { return int(vni >> shift & (1<<bits - 1)) }
	return Instance{
		Update:  vni&EdgeUpdate != 0,
		Server:  part(EdgeServerShift, EdgeServerBits),
		Core:    part(EdgeCoreShift, EdgeCoreBits),
		Service: part(0, EdgeServiceBits),
	}
}

// Tunnel is the headers of such a packet from its outer link header to the packet inside.
type Tunnel struct {
	LinkTo, LinkFrom topo.MAC
	From, To         netip.Addr
	Class            byte
	Flow             uint64 // the LB's digest of the flow
	Instance         Instance
	Message          byte // of bpf/edge/types.h's enum edge_message
	Inward           bool // to the client network
	Returns          bool // behind its chain it goes back to the LB, even unchanged
}

const (
	VXLANPort  = 4789
	vxlanBytes = 8
	edgePort   = 0xc000 // the first source port
)

// Around puts the headers around a packet. The UDP checksum is 0.
func (t Tunnel) Around(packet []byte) []byte {
	b := binary.BigEndian.AppendUint16(nil, edgePort|uint16(t.Flow&0x3fff))
	b = binary.BigEndian.AppendUint16(b, VXLANPort)
	b = binary.BigEndian.AppendUint16(b, uint16(UDPBytes+vxlanBytes+EthernetBytes+len(packet)))
	b = append(append(append(b, 0, 0), t.vxlan(etherType(packet))...), packet...)
	outer := IP{Source: t.From, Destination: t.To, Class: t.Class, HopLimit: DefaultHopLimit, Label: uint32(t.Flow & 0xfffff)}
	return Frame(t.LinkTo, t.LinkFrom, outer.Around(ProtoUDP, b))
}

// Probe is the payload of a datagram by which an LB asks a node for a sign of life. The packet inside is
// an empty packet, so that a decoder of VXLAN finds no fault.
func Probe(server int) []byte {
	const noNextHeader = 59
	t := Tunnel{Instance: Instance{Server: server}, Message: MessageProbe}
	empty := IP{Source: netip.IPv4Unspecified(), Destination: netip.IPv4Unspecified(), HopLimit: DefaultHopLimit}.Around(noNextHeader, nil)
	return append(t.vxlan(etherType(empty)), empty...)
}

// vxlan is the VXLAN header and the link header inside.
func (t Tunnel) vxlan(etherType []byte) []byte {
	b := binary.BigEndian.AppendUint32([]byte{8, 0, 0, 0}, t.Instance.VNI()<<8|uint32(t.Message|t.way()))
	return append(append(b, t.marks()...), etherType...)
}

// way is the upper half of the last byte.
func (t Tunnel) way() (way byte) {
	if t.Inward {
		way |= WayInward
	}
	if t.Returns {
		way |= WayReturns
	}
	return way
}

// marks are the link addresses of the frame inside.
func (t Tunnel) marks() []byte {
	b := binary.BigEndian.AppendUint16(nil, EdgeMarkTo)
	b = binary.BigEndian.AppendUint32(b, uint32(t.Flow>>32))
	b = binary.BigEndian.AppendUint16(b, EdgeMarkFrom)
	return binary.BigEndian.AppendUint32(b, uint32(t.Flow))
}

func headerBytes(ip []byte) int {
	if ip[0]>>4 == 6 {
		return 40
	}
	return 20
}

var errNoTunnel = errors.New("no packet between an edge LB and a node")

// ParseTunnel undoes Around.
func ParseTunnel(frame []byte) (t Tunnel, packet []byte, err error) {
	if len(frame) < EthernetBytes+20 {
		return t, nil, errNoTunnel
	}
	t.LinkTo, t.LinkFrom = topo.MAC(frame[:6]), topo.MAC(frame[6:12])
	ip := frame[EthernetBytes:]
	n := headerBytes(ip)
	if len(ip) < n+UDPBytes+vxlanBytes+EthernetBytes {
		return t, nil, errNoTunnel
	}
	if n == 40 {
		t.From, t.To = netip.AddrFrom16([16]byte(ip[8:24])), netip.AddrFrom16([16]byte(ip[24:40]))
		t.Class = byte(binary.BigEndian.Uint16(ip) >> 4)
	} else {
		t.From, t.To = netip.AddrFrom4([4]byte(ip[12:16])), netip.AddrFrom4([4]byte(ip[16:20]))
		t.Class = ip[1]
	}
	v := ip[n+UDPBytes:]
	inner := v[vxlanBytes:]
	to, from := binary.BigEndian.Uint16(inner), binary.BigEndian.Uint16(inner[6:])
	if binary.BigEndian.Uint32(v) != 0x08000000 || v[7]&MessageBits >= Messages || v[7]&^(MessageBits|Ways) != 0 || to != EdgeMarkTo || from != EdgeMarkFrom {
		return t, nil, fmt.Errorf("%w: %x", errNoTunnel, v[:vxlanBytes+EthernetBytes])
	}
	t.Message, t.Inward, t.Returns = v[7]&MessageBits, v[7]&WayInward != 0, v[7]&WayReturns != 0
	t.Instance = ParseInstance(binary.BigEndian.Uint32(v[4:]) >> 8)
	t.Flow = uint64(binary.BigEndian.Uint32(inner[2:]))<<32 | uint64(binary.BigEndian.Uint32(inner[8:]))
	return t, inner[EthernetBytes:], nil
}

// SetUpdate sets the update flag of a frame that ParseTunnel takes.
func SetUpdate(frame []byte) {
	at := EthernetBytes + headerBytes(frame[EthernetBytes:]) + UDPBytes + vxlanBytes/2
	vni := binary.BigEndian.Uint32(frame[at:]) | EdgeUpdate<<8
	binary.BigEndian.PutUint32(frame[at:], vni)
}
