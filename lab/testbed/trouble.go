package testbed

import (
	"fmt"
	"net"
	"path/filepath"

	"github.com/vishvananda/netlink"
)

// SetMAC gives the node's eth0 another link address, which its kernel announces, as
// after a failover (ndisc_notify, arp_notify).
func (n *Node) SetMAC(mac net.HardwareAddr) error {
	return n.Do(func() error { return setMAC(device, mac) })
}

// SetGatewayMAC gives the router's end of the node's link another link address, likewise.
func (n *Node) SetGatewayMAC(mac net.HardwareAddr) error {
	return n.bed.Router.Do(func() error { return setMAC(n.Link, mac) })
}

func setMAC(name string, mac net.HardwareAddr) error {
	announced := []sysctl{
		{filepath.Join("net/ipv6/conf", name, "ndisc_notify"), "1"},
		{filepath.Join("net/ipv4/conf", name, "arp_notify"), "1"},
	}
	if err := setAll(announced); err != nil {
		return err
	}
	link, err := netlink.LinkByName(name)
	if err == nil {
		err = netlink.LinkSetHardwareAddr(link, mac)
	}
	return wrap(fmt.Sprintf("set the link address of %s", name), err)
}

// BurstRoutes adds so many routes by way of the node's gateway as fast as it can, and
// removes them again. They are of 2001:db8:b::/48, which no node uses.
func (n *Node) BurstRoutes(count int) error {
	return n.Do(func() error {
		link, err := netlink.LinkByName(device)
		if err != nil {
			return fmt.Errorf("find %s: %w", device, err)
		}
		for _, change := range []func(*netlink.Route) error{netlink.RouteReplace, netlink.RouteDel} {
			for i := range count {
				r := netlink.Route{LinkIndex: link.Attrs().Index, Gw: n.gateway.AsSlice(), Dst: ipNet(net64(0x2001, 0xdb8, 0xb, uint16(i)))}
				if err := change(&r); err != nil {
					return fmt.Errorf("change route %d of a burst on %s: %w", i, n.Name, err)
				}
			}
		}
		return nil
	})
}
