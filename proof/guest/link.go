package guest

import (
	"errors"
	"fmt"
	"os"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

const (
	device = "eth0"   // the place's link to the rest of the world
	bridge = "guest0" // joins it to the guest's
	tap    = "guest1"
)

// plug joins the place's eth0 to a tap and returns the tap for QEMU.
func plug(place Place) (file *os.File, err error) {
	err = place.Do(func() error {
		if err := silence(); err != nil {
			return err
		}
		b := &netlink.Bridge{LinkAttrs: attributes(bridge)}
		if err := netlink.LinkAdd(b); err != nil {
			return fmt.Errorf("create bridge: %w", err)
		}
		if file, err = join(b); err != nil {
			return errors.Join(err, netlink.LinkDel(b))
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("plug into %s: %w", device, err)
	}
	return file, nil
}

// attributes are the kernel's defaults, which netlink's zero value is not.
func attributes(name string) netlink.LinkAttrs {
	a := netlink.NewLinkAttrs()
	a.Name = name
	return a
}

// silence takes all addresses from the namespace: the guest may have them.
func silence() error {
	const disable = "/proc/sys/net/ipv6/conf/all/disable_ipv6"
	if err := os.WriteFile(disable, []byte("1"), 0); err != nil {
		return err
	}
	addrs, err := netlink.AddrList(nil, netlink.FAMILY_V4)
	if err != nil {
		return fmt.Errorf("list addresses: %w", err)
	}
	for _, a := range addrs {
		link, err := netlink.LinkByIndex(a.LinkIndex)
		if err == nil {
			err = netlink.AddrDel(link, &a)
		}
		if err != nil {
			return fmt.Errorf("remove %s: %w", a.IPNet, err)
		}
	}
	return nil
}

// join makes the tap, which goes when its last file is closed.
func join(b *netlink.Bridge) (*os.File, error) {
	t := &netlink.Tuntap{
		LinkAttrs: attributes(tap),
		Mode:      netlink.TUNTAP_MODE_TAP,
		// No offloads: whole checksums and no more than a frame at a time on the
		// link, and XDP in the guest's driver needs it so.
		Flags:      unix.IFF_NO_PI,
		NonPersist: true,
		Queues:     1,
	}
	if err := netlink.LinkAdd(t); err != nil {
		return nil, fmt.Errorf("create tap: %w", err)
	}
	file := t.Fds[0]
	eth0, err := netlink.LinkByName(device)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("find %s: %w", device, err), file.Close())
	}
	for _, end := range []netlink.Link{eth0, t} {
		if err := netlink.LinkSetMaster(end, b); err != nil {
			return nil, errors.Join(fmt.Errorf("join %s: %w", end.Attrs().Name, err), file.Close())
		}
	}
	for _, end := range []netlink.Link{eth0, t, b} {
		if err := netlink.LinkSetUp(end); err != nil {
			return nil, errors.Join(fmt.Errorf("bring up %s: %w", end.Attrs().Name, err), file.Close())
		}
	}
	return file, nil
}

// unplug removes the bridge; another guest may have the place then.
func unplug(place Place) error {
	err := place.Do(func() error {
		return netlink.LinkDel(&netlink.Bridge{LinkAttrs: attributes(bridge)})
	})
	if err != nil {
		return fmt.Errorf("unplug from %s: %w", device, err)
	}
	return nil
}
