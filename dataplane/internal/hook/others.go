package hook

import (
	"errors"
	"fmt"
	"net"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
)

// Occupied returns why no XDP program can be attached to a link: another program is there. The
// error has the command that ends it. Without CAP_SYS_ADMIN the kernel tells neither its name
// nor its link.
func Occupied(dev *net.Interface) error {
	l, err := netlink.LinkByIndex(dev.Index)
	if err != nil {
		return err
	}
	xdp := l.Attrs().Xdp
	if xdp == nil || !xdp.Attached {
		return nil
	}
	id := ebpf.ProgramID(xdp.ProgId)
	at, found, err := linkOf(id, dev.Index)
	name := programName(id)
	switch {
	case isOursOn(id):
		return fmt.Errorf("%s has the XDP program %s of a Proffer daemon that has ended, pinned elsewhere: `proffer detach` removes it", dev.Name, describe(name, id))
	case name == dispatcher:
		return fmt.Errorf("%s has the dispatcher of libxdp, %s, under which Proffer cannot run: `xdp-loader unload %s --all`", dev.Name, describe(name, id), dev.Name)
	case found:
		return fmt.Errorf("%s has the XDP program %s by bpf_link %d: stop its owner, or `bpftool link detach id %d`", dev.Name, describe(name, id), at, at)
	case err != nil:
		return fmt.Errorf("%s has the XDP program %s: stop its owner, or `bpftool link detach id LINK` with its LINK of `bpftool link`, or, if it has none there, `ip link set dev %s %s off`", dev.Name, describe(name, id), dev.Name, mode(xdp))
	}
	return fmt.Errorf("%s has the XDP program %s: stop its owner, or `ip link set dev %s %s off`", dev.Name, describe(name, id), dev.Name, mode(xdp))
}

// dispatcher is the program that lets libxdp run several XDP programs on one link.
const dispatcher = "xdp_dispatcher"

// mode is how `ip link` calls the place of a program.
func mode(xdp *netlink.LinkXdp) string {
	const generic = 2 // XDP_ATTACHED_SKB of linux/if_link.h
	if xdp.AttachMode == generic {
		return "xdpgeneric"
	}
	return "xdp"
}

// describe is a program for a reader: "filter (id 42)"; without a name, its number.
func describe(name string, id ebpf.ProgramID) string {
	if name == "" {
		return fmt.Sprintf("id %d", id)
	}
	return fmt.Sprintf("%s (id %d)", name, id)
}

// programName is a program's name, if this process may know it.
func programName(id ebpf.ProgramID) string {
	p, err := ebpf.NewProgramFromID(id)
	if err != nil {
		return ""
	}
	defer p.Close()
	info, err := p.Info()
	if err != nil {
		return ""
	}
	return info.Name
}

// linkOf is the bpf_link of a program on a device; none for a program attached by netlink.
func linkOf(id ebpf.ProgramID, dev int) (at link.ID, found bool, err error) {
	it := new(link.Iterator)
	defer it.Close()
	for it.Next() {
		info, err := it.Link.Info()
		if err == nil && info.Program == id && info.XDP() != nil && int(info.XDP().Ifindex) == dev {
			return it.ID, true, nil
		}
	}
	return 0, false, it.Err()
}

// Bypassed returns why packets of the link, which has this name now, may not meet the program;
// empty: it is the first that they meet.
func (t *TC) Bypassed(dev string) (string, error) {
	var before []string
	var there bool
	var err error
	if t.tcx != nil {
		before, there, err = t.beforeTCX()
	} else {
		before, there, err = t.beforeFilter()
	}
	way := t.place.on(dev)
	switch {
	case err != nil:
		return "", fmt.Errorf("look at %s: %w", way, err)
	case !there:
		return fmt.Sprintf("the program on %s was detached by another program: %s; restart the daemon", way, t.place.cost()), nil
	case len(before) > 0:
		return fmt.Sprintf("on %s packets meet %s before our program; if it takes them, %s", way, strings.Join(before, ", "), t.place.cost()), nil
	}
	return "", nil
}

// beforeTCX lists the tcx programs before ours.
func (t *TC) beforeTCX() (before []string, there bool, err error) {
	info, err := t.tcx.Info()
	if err != nil {
		return nil, false, err
	}
	all, err := link.QueryPrograms(link.QueryOptions{Target: t.place.Dev.Index, Attach: t.place.attach()})
	if err != nil {
		return nil, false, err
	}
	for _, p := range all.Programs {
		if id, ok := p.LinkID(); ok && id == info.ID {
			return before, true, nil
		}
		before = append(before, describe(programName(p.ID), p.ID))
	}
	return nil, false, nil
}

// beforeFilter lists the filters before ours.
func (t *TC) beforeFilter() (before []string, there bool, err error) {
	all, err := filtersOf(t.place.Dev, t.place.parent())
	if err != nil {
		return nil, false, err
	}
	for _, f := range all {
		switch {
		case isOurs(f):
			there = true
		case f.Attrs().Priority < t.filter.Priority:
			before = append(before, fmt.Sprintf("%s filter at priority %d", f.Type(), f.Attrs().Priority))
		}
	}
	return before, there, nil
}

// XDPGone returns that the XDP program of this link, a bpf_link, is no longer on the device.
func XDPGone(l link.Link, dev *net.Interface) (string, error) {
	info, err := l.Info()
	if err != nil {
		return "", fmt.Errorf("look at XDP of %s: %w", dev.Name, err)
	}
	if info.XDP() == nil {
		return "", errors.New("look at XDP: the link is of another kind")
	}
	if int(info.XDP().Ifindex) == dev.Index {
		return "", nil
	}
	return fmt.Sprintf("the XDP program of %s was detached by another program: no packet meets it; restart the daemon", dev.Name), nil
}
