package agent

import (
	"errors"
	"fmt"
	"net"
	"os"

	"github.com/cilium/ebpf"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

const filterName = "proffer_agent_out"

// egress is a program on the way out of a link: clsact rather than tcx, which
// came with kernel 6.6.
type egress struct {
	filter *netlink.BpfFilter
	qdisc  *netlink.Clsact // nil if it was there before us
}

// attachEgress adds the program as the link's first filter. It replaces the filter of a
// killed agent.
func attachEgress(dev *net.Interface, prog *ebpf.Program) (*egress, error) {
	e := &egress{}
	qdisc := &netlink.Clsact{QdiscAttrs: netlink.QdiscAttrs{
		LinkIndex: dev.Index,
		Handle:    netlink.MakeHandle(0xffff, 0),
		Parent:    netlink.HANDLE_CLSACT,
	}}
	switch err := netlink.QdiscAdd(qdisc); {
	case err == nil:
		e.qdisc = qdisc
	case !errors.Is(err, os.ErrExist):
		return nil, fmt.Errorf("add clsact to %s: %w", dev.Name, err)
	case leftBehind(dev):
		e.qdisc = qdisc
	}
	e.filter = &netlink.BpfFilter{
		FilterAttrs: netlink.FilterAttrs{
			LinkIndex: dev.Index,
			Parent:    netlink.HANDLE_MIN_EGRESS,
			Handle:    1,
			Protocol:  unix.ETH_P_ALL,
			Priority:  1,
		},
		Fd:           prog.FD(),
		Name:         filterName,
		DirectAction: true,
	}
	if err := netlink.FilterReplace(e.filter); err != nil {
		return nil, errors.Join(fmt.Errorf("attach to egress of %s: %w", dev.Name, err), e.removeQdisc())
	}
	return e, nil
}

func (e *egress) removeQdisc() error {
	if e.qdisc == nil {
		return nil
	}
	return netlink.QdiscDel(e.qdisc)
}

// close removes the filter, and the qdisc if this agent added it.
func (e *egress) close() error {
	if err := errors.Join(netlink.FilterDel(e.filter), e.removeQdisc()); err != nil {
		return fmt.Errorf("detach from egress: %w", err)
	}
	return nil
}

// leftBehind reports whether the link's only filter is that of a killed agent: then the
// qdisc is this agent's to remove.
func leftBehind(dev *net.Interface) bool {
	link, err := netlink.LinkByIndex(dev.Index)
	if err != nil {
		return false
	}
	in, errIn := netlink.FilterList(link, netlink.HANDLE_MIN_INGRESS)
	out, errOut := netlink.FilterList(link, netlink.HANDLE_MIN_EGRESS)
	if errIn != nil || errOut != nil || len(in) != 0 || len(out) != 1 {
		return false
	}
	f, ok := out[0].(*netlink.BpfFilter)
	return ok && f.Name == filterName
}
