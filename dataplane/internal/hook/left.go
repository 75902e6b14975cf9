package hook

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"

	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Remove takes the programs that a directory of pins names off their link, and removes the
// directory.
func Remove(dir string) error {
	dev, err := detachXDP(filepath.Join(dir, XDPPin))
	if err == nil && dev != nil {
		err = errors.Join(
			RemoveEgress(Place{Dev: dev, Pin: filepath.Join(dir, EgressPin)}),
			RemoveEgress(Place{Dev: dev, Pin: filepath.Join(dir, IngressPin), Mark: filepath.Join(dir, QdiscMark), In: true}))
	}
	if err == nil {
		err = os.RemoveAll(dir)
	}
	if err != nil {
		return fmt.Errorf("remove the programs of %s: %w", dir, err)
	}
	return nil
}

// detachXDP ends a pinned link and returns its device, or nil if there is none any more.
func detachXDP(pin string) (*net.Interface, error) {
	l, err := link.LoadPinnedLink(pin, nil)
	if err != nil {
		return nil, nil // it never had a link: its daemon ended before
	}
	defer l.Close()
	info, err := l.Info()
	if err != nil || info.XDP() == nil || info.XDP().Ifindex == 0 {
		return nil, err
	}
	dev := &net.Interface{Index: int(info.XDP().Ifindex)}
	if d, err := netlink.LinkByIndex(dev.Index); err == nil {
		dev.Name = d.Attrs().Name
	}
	if err := l.Detach(); err != nil && !errors.Is(err, unix.ENOLINK) {
		return nil, err
	}
	return dev, nil
}

// RemoveStray removes our filters from every link of this network namespace that has no XDP
// program: agents without pins leave them if they are killed.
func RemoveStray() (removed []string, err error) {
	all, err := netlink.LinkList()
	if err != nil {
		return nil, fmt.Errorf("list the links: %w", err)
	}
	for _, l := range all {
		if xdp := l.Attrs().Xdp; xdp != nil && xdp.Attached {
			continue // perhaps of a running agent
		}
		dev := &net.Interface{Index: l.Attrs().Index, Name: l.Attrs().Name}
		for _, at := range []Place{{Dev: dev}, {Dev: dev, In: true}} {
			filters, e := filtersOf(dev, at.parent())
			if e != nil || !slices.ContainsFunc(filters, isOurs) {
				continue // perhaps a link that just went
			}
			removed = append(removed, dev.Name)
			err = errors.Join(err, removeFilters(at))
		}
	}
	return removed, err
}
