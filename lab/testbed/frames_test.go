package testbed

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"
)

// What crosses a link is frames, not the super-packets the kernel likes to
// make of them: neither sent (TSO) nor joined on receipt (GRO).
func TestFramesStayFrames(t *testing.T) {
	b := up(t, Config{Servers: 2})
	app, err := b.Behind(b.Servers[1], Macvlan)
	if err != nil {
		t.Fatal(err)
	}
	taps := make(map[string]int)
	err = b.Router.Do(func() (err error) {
		for _, n := range []*Node{b.Client, b.Servers[0], b.Servers[1]} {
			if taps[n.Name], err = tap(n.Link); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	stream(t, b.Client, b.Servers[0], 1<<20)
	stream(t, b.Client, app, 1<<20)
	for name, fd := range taps {
		longest, frames := 0, 0
		buffer := make([]byte, 1<<17)
		for {
			n, err := unix.Read(fd, buffer)
			if err != nil {
				break
			}
			longest, frames = max(longest, n), frames+1
		}
		unix.Close(fd)
		if longest > maxFrame || longest < maxFrame {
			t.Errorf("longest of %d frames from %s has %d bytes, want at most %d", frames, name, longest, maxFrame)
		}
	}
}

// stream sends bytes to an echo and reads them back.
func stream(t *testing.T, from, to *Node, size int) {
	t.Helper()
	l, err := to.Listen("tcp6", netip.AddrPortFrom(to.Addr, Port).String())
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		if c, err := l.Accept(); err == nil {
			io.Copy(c, c)
			c.Close()
		}
	}()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	c, err := from.DialContext(ctx, "tcp6", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(30 * time.Second))
	go func() {
		c.Write(make([]byte, size))
		c.(*net.TCPConn).CloseWrite()
	}()
	if n, err := io.Copy(io.Discard, c); err != nil || n != int64(size) {
		t.Fatalf("%d of %d bytes came back: %v", n, size, err)
	}
}

// A native XDP program on the LB returns datagrams to the VIP by XDP_TX. That
// the client's kernel takes them shows that the router's end receives such
// frames and that checksums were whole before XDP met them.
func TestXDPSendsBack(t *testing.T) {
	b := up(t, Config{Servers: 1})
	attachMirror(t, b.LBs[0])
	connect(t, b.Client, b.LBs[0], b.LBs[0].Addr) // XDP leaves this to the kernel
	c, err := b.Client.DialContext(t.Context(), "udp6", netip.AddrPortFrom(b.VIP, Port).String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for i := range 200 { // few other frames come by that would wake a sleeping receiver
		exchange(t, c, 1+(i*97)%(MTU-40-8))
	}
	exchange(t, c, MTU-40-8)
}

func attachMirror(t *testing.T, n *Node) {
	t.Helper()
	prog, err := ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.XDP, Instructions: mirror(), License: "GPL"})
	if err != nil {
		t.Fatal(err)
	}
	defer prog.Close()
	var attached link.Link
	err = n.Do(func() error {
		dev, err := net.InterfaceByName(device)
		if err != nil {
			return err
		}
		attached, err = link.AttachXDP(link.XDPOptions{Program: prog, Interface: dev.Index, Flags: link.XDPDriverMode})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { attached.Close() })
}

// mirror swaps MACs, addresses and ports of UDP in IPv6 and sends the frame
// back; swapping leaves the checksum right. All else goes to the kernel.
func mirror() asm.Instructions {
	const ethernet, ipv6, udp = 0, 14, 14 + 40
	program := asm.Instructions{
		asm.LoadMem(asm.R2, asm.R1, 0, asm.Word), // data
		asm.LoadMem(asm.R3, asm.R1, 4, asm.Word), // data_end
		asm.Mov.Reg(asm.R4, asm.R2),
		asm.Add.Imm(asm.R4, udp+8),
		asm.JGT.Reg(asm.R4, asm.R3, "pass"),
		asm.LoadMem(asm.R4, asm.R2, 12, asm.Half),
		asm.JNE.Imm(asm.R4, int32(binary.NativeEndian.Uint16([]byte{0x86, 0xdd})), "pass"),
		asm.LoadMem(asm.R4, asm.R2, ipv6+6, asm.Byte),
		asm.JNE.Imm(asm.R4, unix.IPPROTO_UDP, "pass"),
	}
	for _, pair := range []struct {
		a, b int16
		size asm.Size
	}{
		{ethernet, ethernet + 6, asm.Word}, {ethernet + 4, ethernet + 10, asm.Half},
		{ipv6 + 8, ipv6 + 24, asm.DWord}, {ipv6 + 16, ipv6 + 32, asm.DWord},
		{udp, udp + 2, asm.Half},
	} {
		program = append(program,
			asm.LoadMem(asm.R4, asm.R2, pair.a, pair.size),
			asm.LoadMem(asm.R5, asm.R2, pair.b, pair.size),
			asm.StoreMem(asm.R2, pair.a, asm.R5, pair.size),
			asm.StoreMem(asm.R2, pair.b, asm.R4, pair.size))
	}
	const xdpPass, xdpTX = 2, 3
	return append(program,
		asm.Mov.Imm(asm.R0, xdpTX), asm.Return(),
		asm.Mov.Imm(asm.R0, xdpPass).WithSymbol("pass"), asm.Return())
}

// A packet too big for the client's path, from the VIP, is answered to the
// VIP, which is the LBs'; one that fits arrives.
func TestNarrowPath(t *testing.T) {
	const mtu = 1300
	for _, delay := range []time.Duration{0, time.Millisecond} {
		b := up(t, Config{Servers: 1, Delay: Delay{Mean: delay}, ClientMTU: mtu})
		for _, f := range []struct {
			vip, client netip.Addr
			headers     int
			tooBig      []byte // at the beginning of an ICMP message: type, code
		}{
			{b.VIP, b.ClientAddrs[0], 40 + 8, []byte{2, 0}},
			{b.VIP4, b.ClientAddrs4[0], 20 + 8, []byte{3, 4}},
		} {
			var lb int
			err := b.LBs[0].Do(func() (err error) {
				lb, err = tap(device)
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
			c := dialFrom(t, b.Servers[0], f.vip, f.client)
			received := receiver(t, b.Client, f.client)
			send(t, c, mtu-f.headers)
			if n, err := received(); n != mtu-f.headers || err != nil {
				t.Errorf("%d bytes from %s fit, but %d arrived (%v)", mtu, f.vip, n, err)
			}
			send(t, c, mtu-f.headers+1)
			if got := complaint(t, lb, f.tooBig); got != mtu {
				t.Errorf("the LB learns that %d bytes fit, want %d", got, mtu)
			}
			unix.Close(lb)
		}
	}
}

// A stream from a server's own address learns how narrow the path is. With its
// own link of 1500 bytes the client offers to take more.
func TestStreamOnNarrowPath(t *testing.T) {
	b := up(t, Config{Servers: 1, ClientMTU: minMTU})
	stream(t, b.Client, b.Servers[0], 1<<20)
	l, err := b.Client.Listen("tcp", netip.AddrPortFrom(b.ClientAddrs[0], Port).String())
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	c := dial(t, b.LBs[0], "tcp", b.ClientAddrs[0])
	control(t, c, func(fd int) error {
		info, err := unix.GetsockoptTCPInfo(fd, unix.IPPROTO_TCP, unix.TCP_INFO)
		if err == nil && info.Snd_mss != MTU-40-20-12 {
			t.Errorf("the client takes segments of %d bytes", info.Snd_mss)
		}
		return err
	})
}

// dialFrom connects with UDP from one of a node's addresses and forbids
// fragments.
func dialFrom(t *testing.T, n *Node, from, to netip.Addr) net.Conn {
	t.Helper()
	var c *net.UDPConn
	err := n.Do(func() (err error) {
		c, err = net.DialUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(from, 0)),
			net.UDPAddrFromAddrPort(netip.AddrPortFrom(to, Port)))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	whole(t, c)
	return c
}

func send(t *testing.T, c net.Conn, size int) {
	t.Helper()
	if _, err := c.Write(make([]byte, size)); err != nil {
		t.Fatalf("send %d bytes: %v", size, err)
	}
}

// receiver listens for one datagram and returns how long it is.
func receiver(t *testing.T, n *Node, at netip.Addr) func() (int, error) {
	t.Helper()
	var l net.PacketConn
	err := n.Do(func() (err error) {
		l, err = net.ListenPacket("udp", netip.AddrPortFrom(at, Port).String())
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return func() (int, error) {
		l.SetReadDeadline(time.Now().Add(5 * time.Second))
		n, _, err := l.ReadFrom(make([]byte, MTU))
		return n, err
	}
}

// complaint waits for an ICMP message of a type and code and returns the MTU
// it tells: the last two bytes of the first eight in both families.
func complaint(t *testing.T, tap int, kind []byte) int {
	t.Helper()
	frame := make([]byte, maxFrame)
	for deadline := time.Now().Add(5 * time.Second); time.Now().Before(deadline); {
		awaitReadable(tap, deadline)
		n, err := unix.Read(tap, frame)
		if errors.Is(err, unix.EAGAIN) {
			continue
		}
		at, protocol := 14+40, frame[14+6]
		if frame[12] == 8 {
			at, protocol = 14+20, frame[14+9]
		}
		icmp := protocol == unix.IPPROTO_ICMP || protocol == unix.IPPROTO_ICMPV6
		if n > at+8 && icmp && bytes.HasPrefix(frame[at:], kind) {
			return int(frame[at+6])<<8 | int(frame[at+7])
		}
	}
	t.Fatal("no complaint")
	return 0
}
