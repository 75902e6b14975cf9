package responder

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// EchoUDP answers each datagram "<id> <n>" with its own name before it, from
// the address that the datagram was sent to.
type EchoUDP struct {
	name string

	mu       sync.Mutex
	socks    []*net.UDPConn
	closed   bool
	received []Datagram
}

// Datagram is an answered datagram.
type Datagram struct {
	From netip.AddrPort
	To   netip.Addr // the service's address, even if the socket listens on all
	ID   string
	Text string // after the id
}

// NewEchoUDP returns a server that Serve makes answer. A name has no spaces.
func NewEchoUDP(name string) *EchoUDP { return &EchoUDP{name: name} }

// Received lists the datagrams answered so far, in that order.
func (e *EchoUDP) Received() []Datagram {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Clone(e.received)
}

// Serve answers on conn, bound to the service's address or to all, until Close,
// after which it returns nil.
func (e *EchoUDP) Serve(conn *net.UDPConn) error {
	if !e.add(conn) {
		return nil
	}
	if err := prepareUDP(conn); err != nil {
		return fmt.Errorf("echo %s on %s: %w", e.name, conn.LocalAddr(), err)
	}
	datagram, control := make([]byte, 1<<16), make([]byte, 256)
	for {
		n, nc, _, from, err := conn.ReadMsgUDPAddrPort(datagram, control)
		if errors.Is(err, net.ErrClosed) && e.isClosed() {
			return nil
		}
		if err != nil {
			return fmt.Errorf("echo %s on %s: %w", e.name, conn.LocalAddr(), err)
		}
		e.answer(conn, datagram[:n], control[:nc], from)
	}
}

// Close closes the sockets.
func (e *EchoUDP) Close() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.closed = true
	for _, s := range e.socks {
		_ = s.Close()
	}
	return nil
}

func (e *EchoUDP) add(conn *net.UDPConn) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		_ = conn.Close()
		return false
	}
	e.socks = append(e.socks, conn)
	return true
}

func (e *EchoUDP) isClosed() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.closed
}

func (e *EchoUDP) answer(conn *net.UDPConn, datagram, control []byte, from netip.AddrPort) {
	to := destination(control)
	id, text, _ := strings.Cut(string(datagram), " ")
	e.mu.Lock()
	e.received = append(e.received, Datagram{From: plain(from), To: to, ID: id, Text: text})
	e.mu.Unlock()
	// An error means that there is no way back: no peer to report to.
	_, _, _ = conn.WriteMsgUDPAddrPort([]byte(e.name+" "+string(datagram)), control, from)
}

// prepareUDP makes the kernel report the address to which a datagram came, and keep
// the datagrams of 5,000 clients that send at once: by default it drops the 257th.
func prepareUDP(conn *net.UDPConn) error {
	raw, err := conn.SyscallConn()
	if err != nil {
		return err
	}
	level, option := unix.IPPROTO_IPV6, unix.IPV6_RECVPKTINFO
	if conn.LocalAddr().(*net.UDPAddr).AddrPort().Addr().Is4() {
		level, option = unix.IPPROTO_IP, unix.IP_PKTINFO
	}
	var asked, kept error
	err = raw.Control(func(fd uintptr) {
		asked = os.NewSyscallError("ask for destinations", unix.SetsockoptInt(int(fd), level, option, 1))
		kept = os.NewSyscallError("set SO_RCVBUFFORCE (needs CAP_NET_ADMIN)",
			unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 4<<20))
	})
	return errors.Join(err, asked, kept)
}

// destination reads the control message (RFC 3542 §6.2, ip(7)) and makes of it
// the one that sends from there: the same, but by any interface, since the
// answer to a datagram that came in by lo or eth0 goes where the route leads.
func destination(control []byte) netip.Addr {
	messages, err := unix.ParseSocketControlMessage(control)
	if err != nil || len(messages) != 1 {
		return netip.Addr{}
	}
	data := messages[0].Data // shares its bytes with control
	var addr, device []byte
	switch len(data) {
	case unix.SizeofInet4Pktinfo:
		device, addr = data[:4], data[8:12] // and ipi_spec_dst, the source of the answer, is the same
	case unix.SizeofInet6Pktinfo:
		addr, device = data[:16], data[16:20]
	default:
		return netip.Addr{}
	}
	binary.NativeEndian.PutUint32(device, 0)
	to, _ := netip.AddrFromSlice(addr)
	return to.Unmap()
}
