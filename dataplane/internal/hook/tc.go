// Package hook is where programs meet a link: it puts a program of tc beside those of other
// people, and describes the programs that stand in the way of ours.
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

// on describes the place on a link of this name.
func (p Place) on(dev string) string {
	if p.In {
		return "the way into " + dev
	}
	return "the way out of " + dev
}

// cost is the fate of packets that do not meet our program.
func (p Place) cost() string {
	if p.In {
		return "packets that are too long for one frame are lost"
	}
	return "answers carry no signals"
}

// TC is a program on the way out of a link, or in: by a tcx link, the first of all, or where the
// kernel has none (before 6.6) by a filter on clsact.
type TC struct {
	place  Place
	made   bool // the qdisc, by this process
	tcx    link.Link
	filter *netlink.BpfFilter
}

// AttachTC adds the program, or puts it into the place of an earlier daemon's.
func AttachTC(at Place, prog *ebpf.Program) (*TC, error) {
	t := &TC{place: at}
	err := t.attachTCX(prog)
	switch {
	case err == nil: // a daemon before tcx may have left its filter
		return t, t.removeFilters()
	case errors.Is(err, link.ErrNotSupported):
		err = t.attachFilter(prog)
	}
	if err != nil {
		return nil, fmt.Errorf("attach to %s: %w", at.on(at.Dev.Name), err)
	}
	return t, nil
}

func (t *TC) attachTCX(prog *ebpf.Program) error {
	at := t.place
	if at.withoutTCX {
		return link.ErrNotSupported
	}
	if left := leftTCX(at); left != nil {
		err := left.Update(prog)
		if err == nil {
			t.tcx = left
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
	t.tcx = l
	if at.Pin == "" {
		return nil
	}
	os.Remove(at.Pin)
	if err := l.Pin(at.Pin); err != nil {
		return errors.Join(fmt.Errorf("pin the link: %w", err), l.Close())
	}
	return nil
}

// leftTCX is the pinned link of an earlier daemon, if it is of this device.
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

// attachFilter takes the place of an earlier daemon's filter, or the first free priority: the
// filters of others stay as they are.
func (t *TC) attachFilter(prog *ebpf.Program) error {
	at := t.place
	if err := t.makeQdisc(); err != nil {
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
	t.filter = &netlink.BpfFilter{FilterAttrs: attrs, Fd: prog.FD(), Name: at.filter(), DirectAction: true}
	if err := add(t.filter); err != nil {
		return errors.Join(err, t.removeQdisc())
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
func (t *TC) makeQdisc() error {
	at := t.place
	err := netlink.QdiscAdd(qdiscOf(at.Dev))
	if errors.Is(err, os.ErrExist) {
		return nil
	}
	t.made = err == nil
	if t.made && at.Mark != "" {
		err = os.Mkdir(at.Mark, 0o700)
	}
	if err != nil {
		return fmt.Errorf("add clsact: %w", err)
	}
	return nil
}

// removeQdisc removes clsact if it was made for us and has no filters.
func (t *TC) removeQdisc() error {
	at := t.place
	marked := at.Mark != "" && os.Remove(at.Mark) == nil
	if !t.made && !marked {
		return nil
	}
	t.made = false
	for _, parent := range []uint32{netlink.HANDLE_MIN_INGRESS, netlink.HANDLE_MIN_EGRESS} {
		if all, err := filtersOf(at.Dev, parent); err != nil || len(all) > 0 {
			return err
		}
	}
	return netlink.QdiscDel(qdiscOf(at.Dev))
}

// removeFilters removes our filters, and the qdisc if it was made for them.
func (t *TC) removeFilters() error {
	at := t.place
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
	return errors.Join(err, t.removeQdisc())
}

// Detach removes the program, and the qdisc if it was made for it and is empty.
func (t *TC) Detach() error {
	if t.tcx == nil {
		return t.place.detached(t.removeFilters())
	}
	if t.place.Pin != "" {
		os.Remove(t.place.Pin)
	}
	err := t.tcx.Detach()
	if errors.Is(err, unix.ENOLINK) {
		err = nil // its interface is gone, or another person detached it
	}
	return t.place.detached(errors.Join(err, t.tcx.Close()))
}

func (p Place) detached(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("detach from %s: %w", p.on(p.Dev.Name), err)
}

// Close lets the program go; a pinned program, and a filter, stay.
func (t *TC) Close() error {
	if t.tcx == nil {
		return nil
	}
	return t.tcx.Close()
}

// removeTC removes from a link all that daemons left at a place. The caller removes the pins.
func removeTC(at Place) error {
	t := &TC{place: at}
	if left := leftTCX(at); left != nil {
		t.tcx = left
	}
	return t.Detach()
}
