package plane

import (
	"errors"
	"fmt"
	"net"
	"os"
	"strings"

	"github.com/vishvananda/netlink"

	"proffer/dataplane"
	"proffer/dataplane/internal/hook"
	"proffer/dataplane/objects"
)

// self describes this node to its programs.
func self(locator uint64, dev *net.Interface) (objects.LBNode, error) {
	if len(dev.HardwareAddr) != 6 {
		return objects.LBNode{}, fmt.Errorf("%s has no Ethernet address: choose an Ethernet link", dev.Name)
	}
	return objects.LBNode{
		LocatorBe: locator,
		Mac:       [6]byte(dev.HardwareAddr),
		Mtu:       uint16(min(dev.MTU, 65535)),
	}, nil
}

// Follow reads the link again and gives its addresses and MTU of now to the programs. It
// returns the changes, and dataplane.ErrLinkGone for a link that was deleted.
func (p *Plane) Follow() (changed string, err error) {
	changed, err = p.followLink()
	if err != nil {
		return "", err
	}
	others, err := p.Served.Follow(p.Dev.Load())
	if changed != "" && others != "" {
		changed += ", "
	}
	return changed + others, err
}

func (p *Plane) followLink() (changed string, err error) {
	was := p.Dev.Load()
	now, changed, err := follow(was)
	if err != nil || changed == "" {
		return "", err
	}
	me, err := self(p.locator, now)
	if err == nil {
		err = p.Self.Set(me)
	}
	if err != nil {
		return "", fmt.Errorf("follow link %s: %w", was.Name, err)
	}
	p.Dev.Store(now)
	return changed, nil
}

// follow reads a link again, and names the changes.
func follow(was *net.Interface) (now *net.Interface, changed string, err error) {
	if now, err = linkNow(was); err != nil {
		return nil, "", err
	}
	var changes []string
	for _, c := range []struct{ part, was, is string }{
		{"name", was.Name, now.Name},
		{"address", was.HardwareAddr.String(), now.HardwareAddr.String()},
		{"state", updown(was), updown(now)},
		{"MTU", fmt.Sprint(was.MTU), fmt.Sprint(now.MTU)},
	} {
		if c.was != c.is {
			changes = append(changes, fmt.Sprintf("%s %s is now %s", c.part, c.was, c.is))
		}
	}
	return now, strings.Join(changes, ", "), nil
}

// Problems lists why packets may pass the programs by.
func (p *Plane) Problems() (found []string, err error) {
	if p.XDP == nil {
		return nil, nil
	}
	dev := p.Dev.Load()
	gone, err := hook.XDPGone(p.XDP, dev)
	bypassed := ""
	if err == nil && p.TC != nil {
		bypassed, err = p.TC.Bypassed(dev.Name)
	}
	for _, problem := range []string{gone, bypassed} {
		if problem != "" {
			found = append(found, problem)
		}
	}
	return found, err
}

func updown(dev *net.Interface) string {
	if dev.Flags&net.FlagUp != 0 {
		return "up"
	}
	return "down"
}

// linkNow is the link of dev's number as it is now.
func linkNow(dev *net.Interface) (*net.Interface, error) {
	l, err := netlink.LinkByIndex(dev.Index)
	if errors.As(err, new(netlink.LinkNotFoundError)) || errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("%w: %s, number %d", dataplane.ErrLinkGone, dev.Name, dev.Index)
	}
	if err != nil {
		return nil, fmt.Errorf("read link %s: %w", dev.Name, err)
	}
	a := l.Attrs()
	return &net.Interface{Index: a.Index, MTU: a.MTU, Name: a.Name, HardwareAddr: a.HardwareAddr, Flags: a.Flags}, nil
}
