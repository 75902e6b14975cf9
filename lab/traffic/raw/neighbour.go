package raw

import (
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Ethernet returns the header of frames that leave by an interface for an
// address: to the neighbour that the kernel would send them to, where enter
// leads.
func Ethernet(enter func() error, device string, to netip.Addr) (header []byte, err error) {
	err = Inside(enter, func() (err error) {
		header, err = ethernet(device, nil, to)
		return err
	})
	return header, err
}

// ethernet looks nextHop up if it is nil, in the calling thread's namespace.
func ethernet(device string, nextHop net.HardwareAddr, to netip.Addr) ([]byte, error) {
	link, err := netlink.LinkByName(device)
	if err != nil {
		return nil, fmt.Errorf("find interface %s: %w", device, err)
	}
	if nextHop == nil {
		if nextHop, err = neighbour(link, to); err != nil {
			return nil, err
		}
	}
	header := append(append([]byte(nil), nextHop...), link.Attrs().HardwareAddr...)
	if len(header) != 12 {
		return nil, fmt.Errorf("next hop %s by %s (%s): not two Ethernet addresses", nextHop, device, link.Attrs().HardwareAddr)
	}
	protocol := uint16(unix.ETH_P_IPV6)
	if to.Is4() {
		protocol = unix.ETH_P_IP
	}
	return binary.BigEndian.AppendUint16(header, protocol), nil
}

// neighbour has the kernel resolve the next hop if it has not yet.
func neighbour(link netlink.Link, to netip.Addr) (net.HardwareAddr, error) {
	device := link.Attrs().Name
	routes, err := netlink.RouteGetWithOptions(to.AsSlice(), &netlink.RouteGetOptions{Oif: device})
	if err != nil {
		return nil, fmt.Errorf("find route to %s by %s: %w", to, device, err)
	}
	hop := net.IP(to.AsSlice())
	if len(routes) > 0 && routes[0].Gw != nil {
		hop = routes[0].Gw
	}
	// Two seconds in all: the kernel repeats a question after one.
	for wait := time.Millisecond; wait < 2*time.Second; wait *= 2 {
		mac, err := resolved(link, hop)
		if mac != nil || err != nil {
			return mac, err
		}
		knock(hop, device)
		time.Sleep(wait)
	}
	return nil, fmt.Errorf("next hop %s to %s on %s does not answer: give its link address", hop, to, device)
}

func resolved(link netlink.Link, hop net.IP) (net.HardwareAddr, error) {
	known, err := netlink.NeighList(link.Attrs().Index, netlink.FAMILY_ALL)
	if err != nil {
		return nil, fmt.Errorf("list neighbours of %s: %w", link.Attrs().Name, err)
	}
	for _, n := range known {
		if n.IP.Equal(hop) && len(n.HardwareAddr) == 6 && n.State&(netlink.NUD_INCOMPLETE|netlink.NUD_FAILED) == 0 {
			return n.HardwareAddr, nil
		}
	}
	return nil, nil
}

// knock makes the kernel ask for the neighbour: it has a datagram for it.
func knock(hop net.IP, device string) {
	const discard = 9 // RFC 863
	conn, err := net.DialUDP("udp", nil, &net.UDPAddr{IP: hop, Port: discard, Zone: device})
	if err != nil {
		return // the wait for the neighbour reports it
	}
	_, _ = conn.Write(nil)
	_ = conn.Close()
}
