package userspace

import (
	"errors"
	"fmt"
	"net"

	"github.com/vishvananda/netlink"
)

// pair is a core's two links: frames that go out of near reach the socket at far, and back.
type pair struct{ near, far *net.Interface }

// openPair makes a pair for a core, with the MTU of the link to the LBs. A pair that a killed daemon
// left goes before.
func openPair(server, core int, beside string) (p pair, err error) {
	like, err := net.InterfaceByName(beside)
	if err != nil {
		return p, fmt.Errorf("link %q: %w", beside, err)
	}
	near := fmt.Sprintf("proffer%du%d", server, core)
	if left, err := netlink.LinkByName(near); err == nil {
		if err := netlink.LinkDel(left); err != nil {
			return p, fmt.Errorf("remove link %s, which an earlier daemon left: %w", near, err)
		}
	}
	far := near + "s"
	if err := netlink.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: near, MTU: like.MTU}, PeerName: far, PeerMTU: uint32(like.MTU)}); err != nil {
		return p, fmt.Errorf("add links %s and %s: %w", near, far, err)
	}
	for name, to := range map[string]**net.Interface{near: &p.near, far: &p.far} {
		link, err := netlink.LinkByName(name)
		if err == nil {
			err = netlink.LinkSetUp(link)
		}
		if err == nil {
			*to, err = net.InterfaceByName(name)
		}
		if err != nil {
			return p, errors.Join(fmt.Errorf("set %s up: %w", name, err), p.close())
		}
	}
	return p, nil
}

func (p pair) close() error {
	if p.near == nil {
		return nil
	}
	link, err := netlink.LinkByIndex(p.near.Index)
	if err == nil {
		err = netlink.LinkDel(link)
	}
	if err != nil {
		return fmt.Errorf("remove link %s: %w", p.near.Name, err)
	}
	return nil
}
