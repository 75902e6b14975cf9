package hook

import (
	"fmt"
	"net"
	"runtime"
	"strings"
	"unsafe"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// StrippedVLANs returns that XDP on a link takes the frames of VLANs for untagged frames, with the
// command that changes it; empty: it does not. A NIC that strips tags keeps them where XDP cannot
// read them, and packets would leave without.
func StrippedVLANs(dev *net.Interface) (string, error) {
	all, err := netlink.LinkList()
	if err != nil {
		return "", fmt.Errorf("list the links: %w", err)
	}
	return stripped(dev, all)
}

func stripped(dev *net.Interface, all []netlink.Link) (string, error) {
	above := vlansOf(dev, all)
	if len(above) == 0 {
		return "", nil
	}
	strips, err := stripsVLANs(dev.Name)
	if err != nil || !strips {
		return "", err
	}
	return fmt.Sprintf("%s strips the tags of its VLANs (%s): XDP takes their frames for untagged ones and answers without a tag: `ethtool -K %s rxvlan off`",
		dev.Name, strings.Join(above, ", "), dev.Name), nil
}

// vlansOf are the names of a device's VLANs among all links.
func vlansOf(dev *net.Interface, all []netlink.Link) (above []string) {
	for _, l := range all {
		if l.Type() == "vlan" && l.Attrs().ParentIndex == dev.Index {
			above = append(above, l.Attrs().Name)
		}
	}
	return above
}

// ethtoolValue is struct ethtool_value of linux/ethtool.h.
type ethtoolValue struct{ command, data uint32 }

// stripsVLANs: the link's offload rx-vlan-hw-parse is on.
func stripsVLANs(name string) (bool, error) {
	const stripped = 1 << 8 // ETH_FLAG_RXVLAN
	socket, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return false, fmt.Errorf("ask for the offloads of %s: %w", name, err)
	}
	defer unix.Close(socket)
	value := ethtoolValue{command: unix.ETHTOOL_GFLAGS}
	request := struct { // ifreq of linux/if.h with ifr_data in use
		name  [unix.IFNAMSIZ]byte
		value *ethtoolValue
		_     [16]byte // the rest of the union
	}{value: &value}
	copy(request.name[:unix.IFNAMSIZ-1], name)
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(socket), unix.SIOCETHTOOL, uintptr(unsafe.Pointer(&request)))
	runtime.KeepAlive(&value)
	if errno == unix.EOPNOTSUPP {
		return false, nil
	}
	if errno != 0 {
		return false, fmt.Errorf("ask for the offloads of %s: %w", name, errno)
	}
	return value.data&stripped != 0, nil
}
