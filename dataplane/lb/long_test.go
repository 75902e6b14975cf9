package lb_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"proffer/dataplane/objects"
	"proffer/proof/rig"
	"proffer/topo"
	"proffer/wire"
)

// testLong: docs/failures.md, IPv4 without DF, A.6 super-packets: a packet that no frame carries is
// left to lb_long, and no client is asked for smaller packets that it cannot or need not send.
func testLong(t *testing.T, seen rig.Hits) {
	alone := rig.Service(81, topo.Stateless, 1, 4)
	rig.Over4(&alone)
	r := rig.NewLB(t, seen, rig.Hunting(2, 8, rig.Over4), rig.Hunting(2, 8), alone, rig.Hunting(2, 8, rig.Over4, rig.OverUDP))
	six := rig.Inward(rig.HuntPort, wire.ACK)
	four := rig.OverIPv4(six)
	for _, length := range []int{rig.MTU - 63, rig.MTU - 38, rig.MTU - 1, rig.MTU} {
		asked := r.Send(t, rig.Divisible(six, length))
		asked.Is(t, fmt.Sprint("unknown, ", length), rig.XDPTX, nil, "recover", "cut")
		wantCut(t, asked.Frame, rig.Divisible(six, length))
	}
	datagram := rig.Datagram(rig.HuntPort, "")
	r.Send(t, rig.Divisible(datagram, rig.MTU)).Is(t, "unknown datagram", rig.XDPPass, leftToStack(rig.Divisible(datagram, rig.MTU)), "pass_long")
	super := rig.Sized(six, 20000).Frame()
	r.Send(t, super).Is(t, "unknown super-packet", rig.XDPDrop, nil, "drop_super_packet")
	for i, p := range []rig.Packet{four, six} {
		r.Accepted(t, r.List(t, i, p.Flow())[0], p)
		r.Confirm(t, p)
		long := rig.Sized(p, rig.MTU)
		r.Send(t, long.Frame()).Is(t, fmt.Sprint(p.Dst, " with DF"), rig.XDPTX, nil, "too_big")
		long = rig.Sized(p, 20000)
		r.Send(t, long.Frame()).Is(t, fmt.Sprint(p.Dst, ", a super-packet"), rig.XDPPass, leftToStack(long.Frame()), "pass_long")
	}
	fits := rig.MTU - 40
	r.Send(t, rig.Divisible(six, fits)).Is(t, "fits", rig.XDPTX, nil, "steer")
	r.Send(t, rig.Divisible(six, fits+1)).Is(t, "a byte too long", rig.XDPPass, leftToStack(rig.Divisible(six, fits+1)), "pass_long")
	stateless := rig.Inward(81, wire.ACK)
	r.Send(t, rig.Divisible(stateless, rig.MTU)).Is(t, "stateless", rig.XDPPass, leftToStack(rig.Divisible(stateless, rig.MTU)), "pass_long")
	about := rig.TooBig(rig.Sized(four.Reply(wire.ACK), rig.MTU-67), 1400).Frame()
	about[14+6] = 0
	r.Send(t, about).Is(t, "an error", rig.XDPDrop, nil, "drop_too_big")
}

// leftToStack is a frame as lb leaves it to lb_long.
func leftToStack(frame []byte) []byte {
	copy(frame[6:], rig.HereMAC[:])
	return frame
}

// wantCut wants the packet inside an outer header and an SRH to be the beginning of another, with
// right checksums.
func wantCut(t *testing.T, frame, whole []byte) {
	t.Helper()
	const shown = 40 + 8 + 16
	inner, want := frame[14+shown:], whole[14:]
	if len(inner) != 20+512 || int(binary.BigEndian.Uint16(inner[2:])) != len(inner) || wire.Checksum(inner[:20]) != 0 {
		t.Fatalf("%d bytes: %x", len(inner), inner[:20])
	}
	h := wire.IP{Source: netip.AddrFrom4([4]byte(inner[12:])), Destination: netip.AddrFrom4([4]byte(inner[16:]))}
	if h.Checksum(wire.ProtoTCP, inner[20:]) != 0 {
		t.Errorf("checksum of %x", inner[20:])
	}
	if !bytes.Equal(inner[40:], want[40:len(inner)]) || !bytes.Equal(inner[20:33], want[20:33]) {
		t.Errorf("%x is not the beginning of the segment", inner[20:])
	}
}

// live is lb_long attached, without XDP, and the far end of its link, with headers of virtio.
type live struct {
	*rig.LB
	fd int
}

func goLive(t *testing.T, r *rig.LB) live {
	t.Helper()
	l, err := link.AttachTCX(link.TCXOptions{
		Interface: rig.LinkIndex(t, rig.Device), Program: r.Objects().LbLong, Attach: ebpf.AttachTCXIngress,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	dev, err := netlink.LinkByName(rig.Device)
	if err == nil {
		err = netlink.LinkSetGSOMaxSize(dev, rig.MTU) // segments as they are on a wire
	}
	if err != nil {
		t.Fatal(err)
	}
	protocol := objects.PortBits(unix.ETH_P_ALL)
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, int(protocol))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	err = unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: protocol, Ifindex: rig.LinkIndex(t, rig.FarEnd)})
	if err == nil {
		err = unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: 10})
	}
	if err == nil {
		err = unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_VNET_HDR, 1)
	}
	if err != nil {
		t.Fatal(err)
	}
	return live{r, fd}
}

const (
	virtioBytes   = 10 // struct virtio_net_hdr
	needsChecksum = 1  // in its flags
)

// send sends a frame, of segments of mss bytes unless that is 0.
func (l live) send(t *testing.T, frame []byte, mss int) {
	t.Helper()
	header := make([]byte, virtioBytes)
	if mss > 0 {
		ip, kind := wire.IPv6Bytes, byte(4) // VIRTIO_NET_HDR_GSO_TCPV6
		if frame[12] == 8 {
			ip, kind = wire.IPv4Bytes, 1
		}
		header[0], header[1] = needsChecksum, kind // the checksum is the link's to finish
		binary.NativeEndian.PutUint16(header[2:], uint16(14+ip+wire.TCPBytes))
		binary.NativeEndian.PutUint16(header[4:], uint16(mss))
		binary.NativeEndian.PutUint16(header[6:], uint16(14+ip))
		binary.NativeEndian.PutUint16(header[8:], 16)
	}
	if _, err := unix.Write(l.fd, append(header, frame...)); err != nil {
		t.Fatal(err)
	}
}

// receive returns the packets inside the next frames to a function of a server, and those frames'
// destination.
func (l live) receive(t *testing.T, n int) (inner [][]byte, to netip.Addr) {
	t.Helper()
	for buffer := make([]byte, 1<<16); len(inner) < n; {
		got, err := unix.Read(l.fd, buffer)
		if err != nil {
			t.Fatalf("packet %d of %d: %v", len(inner)+1, n, err)
		}
		b := slices.Clone(buffer[virtioBytes:got])
		if len(b) < rig.AtUpper || b[12] != 0x86 || b[rig.AtDst] != 0xfd {
			continue
		}
		to = netip.AddrFrom16([16]byte(b[rig.AtDst:]))
		if len(b) > 14+rig.MTU || int(binary.BigEndian.Uint16(b[rig.AtLength:])) != len(b)-rig.AtUpper {
			t.Fatalf("%d bytes, header %x", len(b), b[14:rig.AtUpper])
		}
		if buffer[0]&needsChecksum != 0 {
			start := binary.NativeEndian.Uint16(buffer[6:])
			at := start + binary.NativeEndian.Uint16(buffer[8:])
			binary.BigEndian.PutUint16(b[at:], wire.Checksum(b[start:]))
		}
		inner = append(inner, unwrapped(t, b))
	}
	return inner, to
}

// unwrapped is the packet in a frame to one server, encapsulated or with an SRH inside.
func unwrapped(t *testing.T, b []byte) []byte {
	t.Helper()
	const inserted = 8 + 3*16
	switch b[rig.AtNext] {
	case 4, 41:
		return b[rig.AtUpper:]
	case 43:
		srh := b[rig.AtUpper : rig.AtUpper+inserted]
		if !bytes.Equal(srh[1:8], []byte{6, 4, 1, 2, 0, 0, 0}) || !bytes.Equal(srh[24:40], b[rig.AtDst:rig.AtUpper]) || !rig.LbLocator.Contains(netip.AddrFrom16([16]byte(srh[40:]))) {
			t.Fatalf("SRH %x", srh)
		}
		b[rig.AtNext] = srh[0]
		binary.BigEndian.PutUint16(b[rig.AtLength:], uint16(len(b)-rig.AtUpper-inserted))
		copy(b[rig.AtDst:], srh[8:24])
		return slices.Concat(b[14:rig.AtUpper], b[rig.AtUpper+inserted:])
	}
	t.Fatalf("next header %d", b[rig.AtNext])
	return nil
}

// counted waits until a counter has moved, and notes it.
func (l live) counted(t *testing.T, seen rig.Hits, name string) {
	t.Helper()
	i := slices.Index(l.Names, name)
	rig.Eventually(t, name, func() bool { return l.Counts(t)[i] > 0 })
	seen[name] = true
}

// testLongFragments: RFC 791 §2.3: two fragments of a packet, in order, each one hop on, to the
// server of the flow.
func testLongFragments(t *testing.T, seen rig.Hits) {
	r := rig.NewLB(t, seen, rig.Hunting(2, 8, rig.Over4), rig.Hunting(2, 8, rig.Over4, rig.OverUDP))
	p, datagram := rig.Inward(rig.HuntPort, wire.ACK), rig.Datagram(rig.HuntPort, "")
	owner := r.List(t, 0, rig.OverIPv4(p).Flow())[0]
	r.Accepted(t, owner, rig.OverIPv4(p))
	r.Confirm(t, rig.OverIPv4(p))
	l := goLive(t, r)
	first := r.List(t, 1, rig.OverIPv4(datagram).Flow())[0]
	for _, length := range []int{rig.MTU - 39, rig.MTU - 8, rig.MTU} {
		for _, c := range []struct {
			p      rig.Packet
			server int
		}{{p, owner}, {datagram, first}} {
			frame := rig.Divisible(c.p, length)
			l.send(t, frame, 0)
			pieces, to := l.receive(t, 2)
			if want := rig.SID(rig.ServerLocator(c.server), wire.Deliver, 0); to != want {
				t.Errorf("%d bytes went to %v, want %v", length, to, want)
			}
			wantPieces(t, frame[14:], pieces)
		}
	}
	l.counted(t, seen, "sent_in_fragments")
	for _, length := range []int{rig.MTU - 63, rig.MTU - 40} { // room for a segment, and not for a list
		frame := rig.Divisible(datagram, length)
		r.Send(t, frame).Is(t, fmt.Sprint("no list fits, ", length), rig.XDPPass, leftToStack(frame), "pass_long")
		l.send(t, frame, 0)
		whole, to := l.receive(t, 1)
		if want := rig.SID(rig.ServerLocator(first), wire.Deliver, 0); to != want || len(whole[0]) != length || !bytes.Equal(whole[0][20:], frame[34:]) {
			t.Errorf("%d bytes: %d went to %v, want %v", length, len(whole[0]), to, want)
		}
	}
	l.counted(t, seen, "deliver")
}

func wantPieces(t *testing.T, whole []byte, pieces [][]byte) {
	t.Helper()
	var joined []byte
	for i, b := range pieces {
		word := binary.BigEndian.Uint16(b[6:])
		more := uint16(0)
		if i == 0 {
			more = 0x2000
		}
		if int(binary.BigEndian.Uint16(b[2:])) != len(b) || word != more|uint16(len(joined)/8) || wire.Checksum(b[:20]) != 0 || b[8] != whole[8]-1 ||
			!bytes.Equal(b[4:6], whole[4:6]) || !bytes.Equal(b[12:20], whole[12:20]) {
			t.Errorf("piece %d of %x has the header %x", i, whole[:20], b[:20])
		}
		joined = append(joined, b[20:]...)
	}
	if !bytes.Equal(joined, whole[20:]) {
		t.Errorf("%d bytes arrived as %d others", len(whole)-20, len(joined))
	}
}

// testSuperPackets: a joined packet leaves as segments that fit the link with our headers, each
// with its own sequence number and checksum.
func testSuperPackets(t *testing.T, seen rig.Hits) {
	const mss, length = 1440, 9000
	r := rig.NewLB(t, seen, rig.Hunting(2, 8), rig.Hunting(2, 8, rig.Over4), rig.Hunting(2, 8, rig.Inserting, func(s *topo.Service) { s.VIP.Port = 81 }))
	six := rig.Inward(rig.HuntPort, wire.ACK)
	packets := []rig.Packet{six, rig.OverIPv4(six), rig.Inward(81, wire.ACK)}
	headers := []int{40, 40, 56}
	for i, p := range packets {
		r.Accepted(t, r.List(t, i, p.Flow())[0], p)
		r.Confirm(t, p)
	}
	l := goLive(t, r)
	for svc, p := range packets {
		long := rig.Sized(p, length)
		frame := long.Frame()
		header := len(frame) - len(long.Payload)
		at := header - wire.TCPBytes
		h := wire.IP{Source: p.Src.Addr(), Destination: p.Dst.Addr()}
		pseudo := ^h.Checksum(wire.ProtoTCP, make([]byte, len(frame)-at)) // the link completes it
		binary.BigEndian.PutUint16(frame[at+16:], pseudo)
		l.send(t, frame, mss)
		room := mss - headers[svc]
		n := (len(long.Payload) + room - 1) / room
		pieces, to := l.receive(t, n)
		if want := rig.SID(rig.ServerLocator(r.List(t, svc, p.Flow())[0]), wire.AckStickiness, wire.Generation(p.Seq)); to != want {
			t.Errorf("%v: to %v, want %v", p.Dst, to, want)
		}
		var joined []byte
		for i, b := range pieces {
			tcp := b[header-14-wire.TCPBytes:]
			if seq := binary.BigEndian.Uint32(tcp[4:]); seq != p.Seq+uint32(len(joined)) || h.Checksum(wire.ProtoTCP, tcp) != 0 {
				t.Errorf("%v: segment %d has number %d and checksum %x", p.Dst, i, seq-p.Seq, tcp[16:18])
			}
			joined = append(joined, tcp[wire.TCPBytes:]...)
		}
		if !bytes.Equal(joined, long.Payload) {
			t.Errorf("%v: %d bytes arrived as %d others", p.Dst, len(long.Payload), len(joined))
		}
	}
	l.counted(t, seen, "sent_in_segments")
}
