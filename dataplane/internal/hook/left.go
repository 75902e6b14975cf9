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

// Remove takes the programs of a directory of pins off their link, and removes the directory.
func Remove(dir string) error {
	var err error
	for _, pin := range XDPPins(dir) {
		err = errors.Join(err, DetachXDP(pin))
	}
	if dev := deviceOf(dir); err == nil && dev != nil {
		err = errors.Join(
			removeTC(Place{Dev: dev, Pin: filepath.Join(dir, EgressPin)}),
			removeTC(Place{Dev: dev, Pin: filepath.Join(dir, IngressPin), Mark: filepath.Join(dir, QdiscMark), In: true}))
	}
	if err == nil {
		err = os.RemoveAll(dir)
	}
	if err != nil {
		return fmt.Errorf("remove the programs of %s: %w", dir, err)
	}
	return nil
}

// DetachXDP ends a pinned link, if there is a link that is still on a device.
func DetachXDP(pin string) error {
	l, err := link.LoadPinnedLink(pin, nil)
	if err != nil {
		return nil // it never had a link: its daemon ended before
	}
	defer l.Close()
	if err := l.Detach(); err != nil && !errors.Is(err, unix.ENOLINK) {
		return err
	}
	return nil
}

// RemoveStray removes our filters from every link of this network namespace that has no XDP
// program: daemons without pins leave them if they are killed.
func RemoveStray() (removed []string, err error) {
	all, err := netlink.LinkList()
	if err != nil {
		return nil, fmt.Errorf("list the links: %w", err)
	}
	for _, l := range all {
		if xdp := l.Attrs().Xdp; xdp != nil && xdp.Attached {
			continue // perhaps of a running daemon
		}
		dev := &net.Interface{Index: l.Attrs().Index, Name: l.Attrs().Name}
		for _, at := range []Place{{Dev: dev}, {Dev: dev, In: true}} {
			filters, e := filtersOf(dev, at.parent())
			if e != nil || !slices.ContainsFunc(filters, isOurs) {
				continue // perhaps a link that just went
			}
			removed = append(removed, "the filter on "+at.on(dev.Name))
			err = errors.Join(err, removeTC(at))
		}
	}
	return removed, err
}
