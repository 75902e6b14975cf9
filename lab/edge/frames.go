package edge

import (
	"encoding/binary"
	"fmt"
	"iter"
	"net"
	"net/netip"
	"time"

	"proffer/lab/edgesim"
	"proffer/lab/testbed"
	"proffer/topo"
	"proffer/wire"
)

// frames makes the datagrams of a simulator's traffic, each stamped with its instant.
type frames struct {
	templates map[netip.Addr][]byte
	to, from  topo.MAC
}

// Offsets in a frame.
const (
	frameIP      = 14
	framePorts   = frameIP + wire.IPv4Bytes
	framePayload = framePorts + 8
)

// ports is how many ports of an address flows have, from 1024 on; addrs how many addresses each
// class has, so that a flow's tuple comes again long after it was forgotten.
const ports, addrs = 60_000, 16

// newFrames reads the link addresses of the client's cable to the LB.
func newFrames(bed *testbed.EdgeBed) (*frames, error) {
	f := &frames{templates: map[netip.Addr][]byte{}}
	for _, end := range []struct {
		at   *testbed.Node
		link string
		to   *topo.MAC
	}{{bed.LB, "clients", &f.to}, {bed.Client, "lb", &f.from}} {
		err := end.at.Do(func() error {
			link, err := net.InterfaceByName(end.link)
			if err == nil {
				*end.to = topo.MAC(link.HardwareAddr)
			}
			return err
		})
		if err != nil {
			return nil, fmt.Errorf("find %s of %s: %w", end.link, end.at.Name, err)
		}
	}
	return f, nil
}

// from is the source of a flow: class c has the addresses 10.1.c+1.x.
func (f *frames) source(p edgesim.Packet) netip.AddrPort {
	addr := netip.AddrFrom4([4]byte{10, 1, byte(p.Class + 1), byte(1 + p.Flow/ports%addrs)})
	return netip.AddrPortFrom(addr, uint16(1024+p.Flow%ports))
}

// frame is a packet's, at an instant of CLOCK_MONOTONIC; the next of the address overwrites it.
func (f *frames) frame(p edgesim.Packet, at time.Duration) []byte {
	source := f.source(p)
	b, known := f.templates[source.Addr()]
	if !known {
		to := testbed.EdgeSink.Addr().Next()
		ip := wire.IP{Source: source.Addr(), Destination: to, HopLimit: wire.DefaultHopLimit}
		b = wire.Frame(f.to, f.from, ip.UDP(source.Port(), 9, make([]byte, wire.StampBytes)))
		b[framePorts+6], b[framePorts+7] = 0, 0 // no checksum, RFC 768
		f.templates[source.Addr()] = b
	}
	binary.BigEndian.PutUint16(b[framePorts:], source.Port())
	wire.PutStamp(b[framePayload:], at)
	return b
}

// of are the frames of traffic that begins at an instant.
func (f *frames) of(packets iter.Seq[edgesim.Packet], start time.Duration) iter.Seq2[time.Duration, []byte] {
	return func(yield func(time.Duration, []byte) bool) {
		for p := range packets {
			if at := start + p.At; !yield(at, f.frame(p, at)) {
				return
			}
		}
	}
}
