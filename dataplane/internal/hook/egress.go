// Package hook is where programs meet a link: it puts a program on the way out beside those of
// other people, and describes the programs that stand in the way of ours.
package hook

import (
	"errors"
	"fmt"
	"net"
	"os"
	"slices"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// The names that mark our filters among those of a link.
const (
	filterOut = "proffer_agent_out"
	filterIn  = "proffer_lb_long"
)

// Place is where a program is to stand, and the names that outlive this process; empty names
// keep nothing.
type Place struct {
	Dev  *net.Interface
	Pin  string // the tcx link's
	Mark string // directory: the clsact qdisc was made for us
	In   bool   // on the way in; else out

	withoutTCX bool // as on kernels before 6.6
}

// parent is where tc has the place's filters.
func (p Place) parent() uint32 {
	if p.In {
		return netlink.HANDLE_MIN_INGRESS
	}
	return netlink.HANDLE_MIN_EGRESS
}

// filter is the name of our filter there.
func (p Place) filter() string {
	if p.In {
		return filterIn
	}
	return filterOut
}

// attach is the place for tcx.
func (p Place) attach() ebpf.AttachType {
	if p.In {
		return ebpf.AttachTCXIngress
	}
	return ebpf.AttachTCXEgress
}

func (p Place) String() string {
	if p.In {
		return "ingress of " + p.Dev.Name
	}
	return "egress of " + p.Dev.Name
}

// Egress is a program on the way out of a link, or in: by a tcx link, the first of all, or where the
// kernel has none (before 6.6) by a filter on clsact.
type Egress struct {
	place  Place
	tcx    link.Link
	filter *netlink.BpfFilter
}

// AttachEgress adds the program, or puts it into the place of an earlier agent's.
func AttachEgress(at Place, prog *ebpf.Program) (*Egress, error) {
	e := &Egress{place: at}
	err := e.attachTCX(prog)
	switch {
	case err == nil: // an agent before tcx may have left its filter
		return e, removeFilters(at)
	case errors.Is(err, link.ErrNotSupported):
		err = e.attachFilter(prog)
	}
	if err != nil {
		return nil, fmt.Errorf("attach to %v: %w", at, err)
	}
	return e, nil
}

func (e *Egress) attachTCX(prog *ebpf.Program) error {
	at := e.place
	if at.withoutTCX {
		return link.ErrNotSupported
	}
	if left := leftTCX(at); left != nil {
		err := left.Update(prog)
		if err == nil {
			e.tcx = left
			return nil
		}
		left.Close()
		if !errors.Is(err, unix.ENOLINK) { // another person detached it
			return err
		}
	}
	l, err := link.AttachTCX(link.TCXOptions{
		Interface: at.Dev.Index, Program: prog, Attach: at.attach(), Anchor: link.Head(),
	})
	if err != nil {
		return err
	}
	e.tcx = l
	if at.Pin == "" {
		return nil
	}
	os.Remove(at.Pin)
	if err := l.Pin(at.Pin); err != nil {
		return errors.Join(fmt.Errorf("pin the link: %w", err), l.Close())
	}
	return nil
}

// leftTCX is the pinned link of an earlier agent, if it is one of this device.
func leftTCX(at Place) link.Link {
	if at.Pin == "" {
		return nil
	}
	l, err := link.LoadPinnedLink(at.Pin, nil)
	if err != nil {
		return nil
	}
	info, err := l.Info()
	if err == nil && info.TCX() != nil && int(info.TCX().Ifindex) == at.Dev.Index {
		return l
	}
	l.Close()
	return nil
}

// attachFilter takes the place of an earlier agent's filter, or the first free priority: the
// filters of others stay as they are.
func (e *Egress) attachFilter(prog *ebpf.Program) error {
	at := e.place
	if err := makeQdisc(at); err != nil {
		return err
	}
	all, err := filtersOf(at.Dev, at.parent())
	if err != nil {
		return err
	}
	attrs := netlink.FilterAttrs{
		LinkIndex: at.Dev.Index,
		Parent:    at.parent(),
		Handle:    1,
		Protocol:  unix.ETH_P_ALL,
		Priority:  freePriority(all),
	}
	add := netlink.FilterAdd
	for _, f := range all {
		if isOurs(f) {
			attrs, add = *f.Attrs(), netlink.FilterReplace
			attrs.Parent = at.parent()
		}
	}
	e.filter = &netlink.BpfFilter{FilterAttrs: attrs, Fd: prog.FD(), Name: at.filter(), DirectAction: true}
	if err := add(e.filter); err != nil {
		return errors.Join(err, removeQdisc(at))
	}
	return nil
}

// freePriority is the first priority that no filter has.
func freePriority(all []netlink.Filter) uint16 {
	var taken []uint16
	for _, f := range all {
		taken = append(taken, f.Attrs().Priority)
	}
	free := uint16(1)
	for slices.Contains(taken, free) {
		free++
	}
	return free
}

func isOurs(f netlink.Filter) bool {
	bpf, ok := f.(*netlink.BpfFilter)
	return ok && (bpf.Name == filterOut || bpf.Name == filterIn)
}

func filtersOf(dev *net.Interface, parent uint32) ([]netlink.Filter, error) {
	l, err := netlink.LinkByIndex(dev.Index)
	if err != nil {
		return nil, err
	}
	return netlink.FilterList(l, parent)
}

func qdiscOf(dev *net.Interface) *netlink.Clsact {
	return &netlink.Clsact{QdiscAttrs: netlink.QdiscAttrs{
		LinkIndex: dev.Index,
		Handle:    netlink.MakeHandle(0xffff, 0),
		Parent:    netlink.HANDLE_CLSACT,
	}}
}

// makeQdisc adds clsact where there is none, and notes that.
func makeQdisc(at Place) error {
	err := netlink.QdiscAdd(qdiscOf(at.Dev))
	if errors.Is(err, os.ErrExist) {
		return nil
	}
	if err == nil && at.Mark != "" {
		err = os.Mkdir(at.Mark, 0o700)
	}
	if err != nil {
		return fmt.Errorf("add clsact: %w", err)
	}
	return nil
}

// removeQdisc removes clsact if it was made for us and has no filters.
func removeQdisc(at Place) error {
	if at.Mark == "" || os.Remove(at.Mark) != nil {
		return nil
	}
	for _, parent := range []uint32{netlink.HANDLE_MIN_INGRESS, netlink.HANDLE_MIN_EGRESS} {
		if all, err := filtersOf(at.Dev, parent); err != nil || len(all) > 0 {
			return err
		}
	}
	return netlink.QdiscDel(qdiscOf(at.Dev))
}

// removeFilters removes our filters, and the qdisc if it was made for them.
func removeFilters(at Place) error {
	all, err := filtersOf(at.Dev, at.parent())
	if err != nil { // a link without clsact has an empty list
		return err
	}
	for _, f := range all {
		if isOurs(f) {
			f.Attrs().Parent = at.parent()
			err = errors.Join(err, netlink.FilterDel(f))
		}
	}
	return errors.Join(err, removeQdisc(at))
}

// Detach removes the program, and the qdisc if it was made for it and is empty.
func (e *Egress) Detach() error {
	if e.tcx == nil {
		return e.place.detached(removeFilters(e.place))
	}
	if e.place.Pin != "" {
		os.Remove(e.place.Pin)
	}
	err := e.tcx.Detach()
	if errors.Is(err, unix.ENOLINK) {
		err = nil // its interface is gone, or another person detached it
	}
	return e.place.detached(errors.Join(err, e.tcx.Close()))
}

func (p Place) detached(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("detach from %v: %w", p, err)
}

// Close lets the program go; a pinned one, and a filter, stay.
func (e *Egress) Close() error {
	if e.tcx == nil {
		return nil
	}
	return e.tcx.Close()
}

// RemoveEgress removes from a link all that daemons left at a place. The caller removes the
// pins.
func RemoveEgress(at Place) error {
	if left := leftTCX(at); left != nil {
		return (&Egress{place: at, tcx: left}).Detach()
	}
	return at.detached(removeFilters(at))
}
