package testbed

import (
	"fmt"
	"net"
	"os"
	"runtime"
	"unsafe"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Foreign is a program of another person on a node's interface.
type Foreign int

const (
	ForeignXDP     Foreign = iota // that passes all, attached by netlink
	ForeignXDPLink                // the same by a bpf_link
	ForeignTaker                  // the first tcx program on the way out; no later one sees a packet
	ForeignWatcher                // the same, but the later ones decide
	ForeignFilter                 // a filter on the way out at priority 1; the later ones decide
)

// Numbers of linux/bpf.h and linux/pkt_cls.h.
const (
	bpfProgAttach, bpfProgDetach = 8, 9
	bpfLinkCreate                = 28
	attachXDP, attachTCXEgress   = 37, 47
	attachBefore                 = 1 << 3
	tcNext                       = -1
)

// Intrude attaches such a program to the node's interface, until remove is called.
func (n *Node) Intrude(f Foreign) (remove func() error, err error) {
	var detach func() error
	err = n.Do(func() error {
		dev, err := net.InterfaceByName(device)
		if err != nil {
			return err
		}
		switch f {
		case ForeignXDP, ForeignXDPLink:
			detach, err = intrudeXDP(dev, f == ForeignXDPLink)
		case ForeignTaker, ForeignWatcher:
			detach, err = intrudeTCX(dev, f == ForeignTaker)
		default:
			detach, err = intrudeFilter()
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("testbed: attach another program to %s: %w", n.Name, err)
	}
	return func() error { return wrap("testbed: detach another program from "+n.Name, n.Do(detach)) }, nil
}

func intrudeXDP(dev *net.Interface, byLink bool) (remove func() error, err error) {
	program, err := passing().load(unix.BPF_PROG_TYPE_XDP, "foreign")
	if err != nil {
		return nil, err
	}
	defer program.Close()
	if byLink {
		attributes := struct{ program, target, kind, flags uint32 }{
			uint32(program.Fd()), uint32(dev.Index), attachXDP, unix.XDP_FLAGS_DRV_MODE,
		}
		link, err := bpf(bpfLinkCreate, unsafe.Pointer(&attributes), unsafe.Sizeof(attributes), "foreign")
		if err != nil {
			return nil, err
		}
		return link.Close, nil
	}
	link, err := netlink.LinkByIndex(dev.Index)
	if err == nil {
		err = netlink.LinkSetXdpFdWithFlags(link, int(program.Fd()), unix.XDP_FLAGS_DRV_MODE)
	}
	return func() error { return netlink.LinkSetXdpFdWithFlags(link, -1, unix.XDP_FLAGS_DRV_MODE) }, err
}

// leaving is a tc program that returns a constant.
func leaving(value int32) (*os.File, error) {
	a := newAssembly()
	a.leave(value)
	return a.load(unix.BPF_PROG_TYPE_SCHED_CLS, "foreign")
}

func intrudeTCX(dev *net.Interface, takes bool) (remove func() error, err error) {
	verdict := int32(tcNext)
	if takes {
		verdict = tcPass
	}
	program, err := leaving(verdict)
	if err != nil {
		return nil, err
	}
	// union bpf_attr for BPF_PROG_ATTACH and BPF_PROG_DETACH
	at := &struct{ target, program, kind, flags uint32 }{uint32(dev.Index), uint32(program.Fd()), attachTCXEgress, attachBefore}
	if err := bpfDo(bpfProgAttach, unsafe.Pointer(at), unsafe.Sizeof(*at)); err != nil {
		program.Close()
		return nil, err
	}
	return func() error {
		defer program.Close()
		at.flags = 0
		return bpfDo(bpfProgDetach, unsafe.Pointer(at), unsafe.Sizeof(*at))
	}, nil
}

// bpfDo is bpf(2) for the commands that return nothing.
func bpfDo(command uintptr, attributes unsafe.Pointer, size uintptr) error {
	_, _, errno := unix.Syscall(unix.SYS_BPF, command, uintptr(attributes), size)
	runtime.KeepAlive(attributes)
	if errno != 0 {
		return errno
	}
	return nil
}

func intrudeFilter() (remove func() error, err error) {
	program, err := leaving(tcNext)
	if err != nil {
		return nil, err
	}
	defer program.Close()
	here, err := netlink.NewHandle()
	if err != nil {
		return nil, err
	}
	defer here.Close()
	if err := (&space{netlink: here}).filter(device, netlink.HANDLE_MIN_EGRESS, program); err != nil {
		return nil, err
	}
	return func() error {
		link, err := netlink.LinkByName(device)
		if err != nil {
			return err
		}
		return netlink.QdiscDel(&netlink.Clsact{QdiscAttrs: netlink.QdiscAttrs{
			LinkIndex: link.Attrs().Index, Handle: netlink.MakeHandle(0xffff, 0), Parent: netlink.HANDLE_CLSACT,
		}})
	}, nil
}
