package report

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"syscall"

	"golang.org/x/sys/unix"
)

// Socket sends and receives datagrams at a node's own address.
type Socket struct{ conn *net.UDPConn }

// Open opens a socket at an address of this node, at port 0 at any port. The address need not be there
// yet: datagrams come when it is.
func Open(ctx context.Context, at netip.AddrPort) (*Socket, error) {
	network, level, option := "udp6", unix.SOL_IPV6, unix.IPV6_FREEBIND
	if at.Addr().Is4() {
		network, level, option = "udp4", unix.SOL_IP, unix.IP_FREEBIND
	}
	free := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) (err error) {
		return joined(c.Control(func(fd uintptr) {
			err = unix.SetsockoptInt(int(fd), level, option, 1)
		}), &err)
	}}
	conn, err := free.ListenPacket(ctx, network, at.String())
	if err != nil {
		return nil, fmt.Errorf("open the socket for reports of loads: %w", err)
	}
	return &Socket{conn.(*net.UDPConn)}, nil
}

// joined is the first error of a call and of the function that it called.
func joined(call error, inside *error) error {
	if call != nil {
		return call
	}
	return *inside
}

// Send sends a datagram.
func (s *Socket) Send(to netip.AddrPort, b []byte) error {
	_, err := s.conn.WriteToUDPAddrPort(b, to)
	return err
}

// Receive waits for a datagram; a longer datagram than all messages is cut to a length that none has.
func (s *Socket) Receive() (b []byte, from netip.AddrPort, err error) {
	b = make([]byte, NodeSize+1)
	n, from, err := s.conn.ReadFromUDPAddrPort(b)
	return b[:n], from, err
}

// Close ends a Receive.
func (s *Socket) Close() error { return s.conn.Close() }
