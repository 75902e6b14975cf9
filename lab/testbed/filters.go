package testbed

import (
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"unsafe"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// programs are those that the router's interfaces may carry, and the memory that
// they share with us.
//
//	frame from a node ──▶ XDP: pass, lose or dark ──▶ tc ingress, the client's: edge ──▶ kernel
//	frame to a node ◀── tc egress: loseOut or darkOut ◀── kernel
type programs struct {
	pass, lose, dark       *os.File // XDP
	loseOut, darkOut, edge *os.File // tc
	array                  *os.File
	memory                 []byte // the array's only value, mapped
	shared                 *shared
}

// shared is the value's layout: the programs know the offsets.
type shared struct {
	threshold atomic.Uint32 // a random 32-bit word below it loses the frame
	_         uint32
	lost      atomic.Uint64
	edge      atomic.Uint64
	swallowed atomic.Uint64
}

const (
	atThreshold = int16(unsafe.Offsetof(shared{}.threshold))
	atLost      = int16(unsafe.Offsetof(shared{}.lost))
	atEdge      = int16(unsafe.Offsetof(shared{}.edge))
	atSwallowed = int16(unsafe.Offsetof(shared{}.swallowed))
)

// Return values of programs of either kind (linux/bpf.h, linux/pkt_cls.h).
const (
	xdpDrop, xdpPass = 1, 2
	tcPass, tcDrop   = 0, 2
)

// load fills p; close closes the files that it opened, also after an error.
func (p *programs) load() (err error) {
	if p.array, err = newArray(uint32(unsafe.Sizeof(shared{}))); err != nil {
		return err
	}
	p.memory, err = unix.Mmap(int(p.array.Fd()), 0, os.Getpagesize(), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return fmt.Errorf("map BPF array: %w", err)
	}
	p.shared = (*shared)(unsafe.Pointer(&p.memory[0]))
	for _, l := range []struct {
		to   **os.File
		kind uint32
		name string
		code *assembly
	}{
		{&p.pass, unix.BPF_PROG_TYPE_XDP, "pass", passing()},
		{&p.lose, unix.BPF_PROG_TYPE_XDP, "lose", losing(p.array, xdpDrop, xdpPass)},
		{&p.loseOut, unix.BPF_PROG_TYPE_SCHED_CLS, "lose out", losing(p.array, tcDrop, tcPass)},
		{&p.dark, unix.BPF_PROG_TYPE_XDP, "dark", swallowing(p.array, xdpDrop)},
		{&p.darkOut, unix.BPF_PROG_TYPE_SCHED_CLS, "dark out", swallowing(p.array, tcDrop)},
		{&p.edge, unix.BPF_PROG_TYPE_SCHED_CLS, "edge", guarding(p.array)},
	} {
		if *l.to, err = l.code.load(l.kind, l.name); err != nil {
			return err
		}
	}
	return nil
}

func (p *programs) close() error {
	var errs []error
	for _, f := range []*os.File{p.pass, p.lose, p.dark, p.loseOut, p.darkOut, p.edge, p.array} {
		if f != nil {
			errs = append(errs, f.Close())
		}
	}
	if p.memory != nil {
		errs = append(errs, unix.Munmap(p.memory))
	}
	*p = programs{}
	return errors.Join(errs...)
}

// passing is the smallest program there is. A veth end takes the frames that
// its peer returns by XDP_TX only from NAPI, and the kernel wakes NAPI for it only if an
// XDP program sits on the end: GRO alone makes the driver queue the frames and
// forget them until some other frame comes (veth_xdp_flush, measured on 6.18).
// So each of the router's ends carries this at least.
func passing() *assembly {
	a := newAssembly()
	a.leave(xdpPass)
	return a
}

// receive puts an XDP program on an interface of the router, in the place of
// the one that was there.
func (b *Bed) receive(name string, program *os.File) error {
	return b.Router.Do(func() error {
		link, err := netlink.LinkByName(name)
		if err == nil {
			err = netlink.LinkSetXdpFdWithFlags(link, int(program.Fd()), unix.XDP_FLAGS_DRV_MODE)
		}
		return wrap("attach XDP program to "+name, err)
	})
}

// filter puts a tc program on an interface: netlink.HANDLE_MIN_INGRESS sees
// packets that arrive after XDP, HANDLE_MIN_EGRESS packets that leave. The program takes
// the place of the one that was there.
func (s *space) filter(name string, where uint32, program *os.File) error {
	link, err := s.netlink.LinkByName(name)
	if err != nil {
		return fmt.Errorf("find %s: %w", name, err)
	}
	index := link.Attrs().Index
	both := &netlink.GenericQdisc{QdiscType: "clsact", QdiscAttrs: netlink.QdiscAttrs{
		LinkIndex: index, Handle: netlink.MakeHandle(0xffff, 0), Parent: netlink.HANDLE_CLSACT,
	}}
	if err := s.netlink.QdiscAdd(both); err != nil && !errors.Is(err, unix.EEXIST) {
		return fmt.Errorf("add clsact to %s: %w", name, err)
	}
	err = s.netlink.FilterReplace(&netlink.BpfFilter{
		FilterAttrs:  netlink.FilterAttrs{LinkIndex: index, Parent: where, Handle: 1, Priority: 1, Protocol: unix.ETH_P_ALL},
		Fd:           int(program.Fd()),
		Name:         program.Name(),
		DirectAction: true,
	})
	return wrap("filter on "+name, err)
}
