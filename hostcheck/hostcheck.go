// Package hostcheck finds the settings of a host with which packets would be lost without a
// word, and names the command that mends each: a VIP that is no address of its server, or that
// draws its packets there past the LB; a link that is a port of a bridge; and on a veth link
// checksums that are left to a device that has none, and frames that do not wake the other end.
// And it finds those with which packets pass an edge LB's functions by.
package hostcheck

import (
	"fmt"
	"net/netip"
	"path/filepath"
	"runtime"
	"unsafe"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"proffer/foreign"
)

// VIPs returns advice for each address that is none of this network namespace: its packets
// would be forwarded or dropped.
func VIPs(vips []netip.Addr) (advice []string) {
	for _, vip := range vips {
		routes, err := netlink.RouteGet(vip.AsSlice())
		if err == nil && len(routes) > 0 && routes[0].Type == unix.RTN_LOCAL {
			continue
		}
		advice = append(advice, fmt.Sprintf("VIP %s is no address of this host: `ip addr add %s dev lo`", vip, netip.PrefixFrom(vip, vip.BitLen())))
	}
	return advice
}

// Link returns advice for a link that is a port of a bridge, and for a veth link. answers: this
// host's own packets leave by it through a program.
func Link(name string, answers bool) ([]string, error) {
	link, err := netlink.LinkByName(name)
	if err != nil {
		return nil, fmt.Errorf("check link %q: %w", name, err)
	}
	advice := port(link)
	if link.Type() != "veth" {
		return advice, nil
	}
	if answers {
		advice = append(advice, checksums(name, "answers inside signals carry no checksum", "")...)
	}
	return append(advice, farEnd(link)...), nil
}

// farEnd returns advice for the other end of a veth link.
func farEnd(link netlink.Link) (advice []string) {
	name, peer := link.Attrs().Name, link.Attrs().ParentIndex
	if link.Attrs().NetNsID < 0 {
		return wakes(name, peer, "")
	}
	for _, space := range []string{"/run/netns/*", "/proc/1/ns/net"} {
		paths, _ := filepath.Glob(space)
		for _, path := range paths {
			if !isSpace(path, link.Attrs().NetNsID) {
				continue
			}
			inside := "nsenter --net=" + path + " "
			if filepath.Dir(path) == "/run/netns" {
				inside = "ip netns exec " + filepath.Base(path) + " "
			}
			err := foreign.Within(path, func() error {
				advice = wakes(name, peer, inside)
				return nil
			})
			if err == nil {
				return advice
			}
		}
	}
	return []string{fmt.Sprintf("%s is a veth and its other end is out of sight, so it is not known whether `ethtool -K PEER gro on tx off` was done there, which our frames need", name)}
}

// isSpace reports whether a network namespace has a number in this namespace.
func isSpace(path string, number int) bool {
	space, err := foreign.OpenNamespace(path)
	if err != nil {
		return false
	}
	defer space.Close()
	is, err := netlink.GetNetNsIdByFd(int(space.Fd()))
	return err == nil && is == number
}

// wakes returns advice for the end of a veth link, in this network namespace, that frames of our programs come out
// of. Its commands begin with inside.
func wakes(name string, number int, inside string) (advice []string) {
	peer, err := netlink.LinkByIndex(number)
	if err != nil {
		return nil // it goes as we look
	}
	other := peer.Attrs().Name
	if on, err := hasFeature(other, unix.ETHTOOL_GGRO); err == nil && !on && peer.Attrs().Xdp != nil && !peer.Attrs().Xdp.Attached {
		advice = append(advice, fmt.Sprintf("%s, the other end of %s, takes no frames of our programs: `%sethtool -K %[1]s gro on`", other, name, inside))
	}
	return append(advice, checksums(other, "packets that are sent there carry no checksum", inside)...)
}

// port returns advice for a link that is a port of another link: a program there meets frames before that has them,
// while addresses, routes and neighbours are that link's.
func port(link netlink.Link) []string {
	if link.Attrs().MasterIndex == 0 {
		return nil
	}
	master, err := netlink.LinkByIndex(link.Attrs().MasterIndex)
	if err != nil {
		return nil
	}
	return portOf(link.Attrs().Name, master)
}

// ports are the kinds of links that have ports, and how a port is called.
var ports = map[string]string{"bridge": "a port of the bridge", "bond": "a slave of the bond", "team": "a port of the team"}

// portOf is port for a link of that name, and its master.
func portOf(name string, master netlink.Link) []string {
	is, known := ports[master.Type()]
	if !known { // such as a VRF, by which routes are followed
		return nil
	}
	return []string{fmt.Sprintf("%s is %s %s: frames are taken at %[1]s before %[3]s has them, and those of its other ports never; addresses and routes, so next hops, are %[3]s's: name %[3]s in the configuration file, or take the port out: `ip link set dev %[1]s nomaster`", name, is, master.Attrs().Name)}
}

// checksums returns advice for a link that leaves checksums to a device. Its command begins with inside.
func checksums(name, then, inside string) []string {
	if on, err := hasFeature(name, unix.ETHTOOL_GTXCSUM); err != nil || !on {
		return nil
	}
	return []string{fmt.Sprintf("%s leaves checksums to a device that has none, so %s: `%sethtool -K %[1]s tx off`", name, then, inside)}
}

// value is struct ethtool_value of linux/ethtool.h.
type value struct{ command, data uint32 }

// request is struct ifreq of linux/if.h with ifr_data in use.
type request struct {
	name  [unix.IFNAMSIZ]byte
	value *value
	_     [16]byte // the rest of the union
}

// hasFeature reads a feature of a link by its command ETHTOOL_G….
func hasFeature(name string, command uint32) (bool, error) {
	socket, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return false, fmt.Errorf("read a feature of %s: %w", name, err)
	}
	defer unix.Close(socket)
	v := value{command: command}
	r := request{value: &v}
	copy(r.name[:unix.IFNAMSIZ-1], name)
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(socket), unix.SIOCETHTOOL, uintptr(unsafe.Pointer(&r)))
	runtime.KeepAlive(&v)
	if errno != 0 {
		return false, fmt.Errorf("read a feature of %s: %w", name, errno)
	}
	return v.data != 0, nil
}
