package testbed

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"
)

const knocks = 4

// knock sends a datagram to a closed port of the router, in IPv6 and in IPv4,
// and waits for the refusal, by which time both ends have resolved each other:
// the first packet of an experiment does not wait.
func (n *Node) knock() error {
	for _, gateway := range []netip.Addr{n.gateway, n.gateway4} {
		if err := n.knockAt(gateway); err != nil {
			return fmt.Errorf("no answer from the router at %s: %w", gateway, err)
		}
	}
	return nil
}

func (n *Node) knockAt(gateway netip.Addr) (err error) {
	const discard = 9 // RFC 863; no listener
	for range knocks {
		if err = n.knockOnce(netip.AddrPortFrom(gateway, discard)); err == nil {
			return nil
		}
	}
	return err
}

func (n *Node) knockOnce(door netip.AddrPort) error {
	var socket *net.UDPConn
	err := n.Do(func() (err error) {
		socket, err = net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(door))
		return err
	})
	if err != nil {
		return err
	}
	defer socket.Close()
	if _, err := socket.Write([]byte{0}); err != nil {
		return err
	}
	if err := socket.SetReadDeadline(time.Now().Add(patience)); err != nil {
		return err
	}
	if _, err = socket.Read(make([]byte, 1)); errors.Is(err, unix.ECONNREFUSED) {
		return nil
	}
	return err
}
