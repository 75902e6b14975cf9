package agentless

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"

	"proffer/topo"
)

// vxlan are the steps of vxlan devices.
func (s *Setup) vxlan() {
	for _, u := range s.Uses {
		if u.Delivery != topo.ByVXLAN {
			continue
		}
		s.add(s.device(u))
		s.add(s.up(deviceOf(u)))
		if isIPv4(u) {
			s.add(s.second(u.VIP.Addr, deviceOf(u)))
			s.add(s.loose(deviceOf(u), ofClients))
		}
	}
}

// overIPv4 reports whether packets come in VXLAN over IPv4.
func overIPv4(u Use) bool { return u.Delivery == topo.ByVXLAN && u.Address.Is4() }

// deviceOf is the name of a server's vxlan device: a VNI may have a device over IPv6 and a device over IPv4.
func deviceOf(u Use) string {
	if u.Address.Is4() {
		return fmt.Sprintf("vxlan%d-4", u.VNI)
	}
	return fmt.Sprintf("vxlan%d", u.VNI)
}

// hasDevice reports whether a link is among the vxlan devices.
func (s *Setup) hasDevice(link string) bool {
	return s.has(func(u Use) bool { return u.Delivery == topo.ByVXLAN && deviceOf(u) == link })
}

// device is the vxlan device of a server. Over IPv6 the LB sends no UDP checksum (RFC 6935), which
// the kernel takes from devices that allow it alone. It learns no link address: it sends nothing.
func (s *Setup) device(u Use) Step {
	name, mac := deviceOf(u), net.HardwareAddr(u.MAC[:])
	why, zero := "a vxlan device takes packets out of VXLAN; the LB sends to its link address", ""
	if u.Address.Is6() {
		why, zero = why+", without UDP checksum", " udp6zerocsumrx"
	}
	return Step{
		Why: why,
		Do: fmt.Sprintf("ip link show %[1]s >/dev/null 2>&1 || ip link add %[1]s address %s type vxlan id %d dstport %d local %s nolearning%s",
			name, mac, u.VNI, topo.VXLANPort, u.Address, zero),
		Undo: "ip link del " + name,
		lacks: func(h *host) (string, error) {
			link, err := h.link(name)
			if err != nil || link == nil {
				return fmt.Sprintf("no link %s", name), err
			}
			v, is := link.(*netlink.Vxlan)
			if !is {
				return fmt.Sprintf("%s is a %s", name, link.Type()), nil
			}
			return unlike(v, u), nil
		},
	}
}

// unlike lists the differences of a device from its wanted form.
func unlike(v *netlink.Vxlan, u Use) string {
	var wrong []string
	note := func(is bool, format string, args ...any) {
		if is {
			wrong = append(wrong, fmt.Sprintf(format, args...))
		}
	}
	note(v.VxlanId != u.VNI, "id %d, want %d", v.VxlanId, u.VNI)
	note(v.Port != topo.VXLANPort, "dstport %d, want %d", v.Port, topo.VXLANPort)
	note(!slices.Equal(v.HardwareAddr, u.MAC[:]), "address %s, want %s", v.HardwareAddr, net.HardwareAddr(u.MAC[:]))
	note(v.SrcAddr != nil && !v.SrcAddr.Equal(u.Address.AsSlice()), "local %s, want %s", v.SrcAddr, u.Address)
	note(u.Address.Is6() && !v.UDP6ZeroCSumRx, "noudp6zerocsumrx, want udp6zerocsumrx")
	if wrong == nil {
		return ""
	}
	return v.Name + " has " + strings.Join(wrong, ", ") + ": remove it first, `ip link del " + v.Name + "`"
}

// second is a VIP on a vxlan device, too: on a link without IPv4 addresses the kernel lets no source
// in that is reached by another link, even where it filters loosely.
func (s *Setup) second(vip netip.Addr, name string) Step {
	at := netip.PrefixFrom(vip, vip.BitLen())
	return Step{
		Why: fmt.Sprintf("%s has the VIP %s as well: without an IPv4 address it lets no client's packet in", name, vip),
		Do:  fmt.Sprintf("ip addr replace %s dev %s", at, name),
		lacks: func(h *host) (string, error) {
			links, err := h.linksOf(vip)
			if err != nil || slices.Contains(links, name) {
				return "", err
			}
			return fmt.Sprintf("%s is no address of %s", vip, name), nil
		},
	}
}

// up is a device that runs.
func (s *Setup) up(name string) Step {
	return Step{
		Why: name + " runs",
		Do:  "ip link set " + name + " up",
		lacks: func(h *host) (string, error) {
			link, err := h.link(name)
			if err != nil || link != nil && link.Attrs().Flags&net.FlagUp != 0 {
				return "", err
			}
			return name + " is down", nil
		},
	}
}
