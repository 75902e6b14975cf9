package testbed

import (
	"context"
	"encoding/binary"
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
