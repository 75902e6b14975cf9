package testbed

import (
	"errors"
	"fmt"
	"os"
	"runtime"
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

// The router's few filters are some instructions each. They need no compiler
// and no loader; the daemons' programs are another package's affair.

// instruction is struct bpf_insn of linux/bpf.h on a little-endian machine.
type instruction struct {
	code      uint8
	registers uint8 // target in the low half, source in the high one
	offset    int16
	constant  int32
}

// Registers: a call returns in r0; r1 is the context on entry, r1 to r5 do not
// survive a call.
const (
	r0 = iota
	r1
	r2
	r3
	r4
	r5
	r6
)

// assembly is a program being written; jumps are to labels further on.
type assembly struct {
	code   []instruction
	labels map[string]int // the instruction that each stands before
	jumps  map[int]string // the instruction that jumps, and where to
}

func newAssembly() *assembly {
	return &assembly{labels: map[string]int{}, jumps: map[int]string{}}
}

func (a *assembly) add(code int, target, source uint8, offset int16, constant int32) {
	a.code = append(a.code, instruction{uint8(code), source<<4 | target, offset, constant})
}

// set is r = constant, and move is r = source.
func (a *assembly) set(target uint8, constant int32) {
	a.add(unix.BPF_ALU64|unix.BPF_MOV|unix.BPF_K, target, 0, 0, constant)
}
func (a *assembly) move(target, source uint8) {
	a.add(unix.BPF_ALU64|unix.BPF_MOV|unix.BPF_X, target, source, 0, 0)
}

// plus is r += constant, and sum is r += source.
func (a *assembly) plus(target uint8, constant int32) {
	a.add(unix.BPF_ALU64|unix.BPF_ADD|unix.BPF_K, target, 0, 0, constant)
}
func (a *assembly) sum(target, source uint8) {
	a.add(unix.BPF_ALU64|unix.BPF_ADD|unix.BPF_X, target, source, 0, 0)
}

// read is r = memory at source + offset; size is unix.BPF_B, BPF_H or BPF_W.
func (a *assembly) read(size int, target, source uint8, offset int16) {
	a.add(unix.BPF_LDX|unix.BPF_MEM|size, target, source, offset, 0)
}

// count adds one to the 64 bits at target + offset, atomically.
func (a *assembly) count(target uint8, offset int16) {
	a.set(r1, 1)
	a.add(unix.BPF_STX|unix.BPF_ATOMIC|unix.BPF_DW, target, r1, offset, unix.BPF_ADD)
}

// jump compares with a constant, and compare with a register.
func (a *assembly) jump(condition int, target uint8, constant int32, to string) {
	a.jumps[len(a.code)] = to
	a.add(unix.BPF_JMP|unix.BPF_K|condition, target, 0, 0, constant)
}
func (a *assembly) compare(condition int, target, source uint8, to string) {
	a.jumps[len(a.code)] = to
	a.add(unix.BPF_JMP|unix.BPF_X|condition, target, source, 0, 0)
}

func (a *assembly) label(name string) { a.labels[name] = len(a.code) }

// leave returns a constant from the program.
func (a *assembly) leave(value int32) {
	a.set(r0, value)
	a.add(unix.BPF_JMP|unix.BPF_EXIT, 0, 0, 0, 0)
}

// load gives the program to the kernel, which checks it.
func (a *assembly) load(kind uint32, name string) (*os.File, error) {
	for at, to := range a.jumps {
		a.code[at].offset = int16(a.labels[to] - at - 1)
	}
	license := []byte("GPL\x00")
	flags := uint32(0)
	if kind == unix.BPF_PROG_TYPE_XDP {
		flags = unix.BPF_F_XDP_HAS_FRAGS // links may have an MTU of 9000
	}
	attributes := struct { // union bpf_attr for BPF_PROG_LOAD, its beginning
		kind, instructions uint32
		program            *instruction
		license            *byte
		_                  [2]uint32 // log_level, log_size
		_                  uint64    // log_buf
		_, flags           uint32    // kern_version
	}{kind: kind, instructions: uint32(len(a.code)), program: &a.code[0], license: &license[0], flags: flags}
	f, err := bpf(unix.BPF_PROG_LOAD, unsafe.Pointer(&attributes), unsafe.Sizeof(attributes), name)
	runtime.KeepAlive(&attributes)
	return f, wrap("load BPF program "+name, err)
}

// bpf is bpf(2) for the commands that return a descriptor. The verifier gives
// up with EAGAIN when a signal comes, as Go's runtime sends to its threads.
func bpf(command uintptr, attributes unsafe.Pointer, size uintptr, name string) (*os.File, error) {
	const tries = 30
	fd, errno := uintptr(0), unix.EAGAIN
	for i := 0; i < tries && errno == unix.EAGAIN; i++ {
		fd, _, errno = unix.Syscall(unix.SYS_BPF, command, uintptr(attributes), size)
	}
	if errno != 0 {
		return nil, errno
	}
	unix.CloseOnExec(int(fd))
	return os.NewFile(fd, name), nil
}

// newArray makes a BPF array of one value, which the caller may map.
func newArray(size uint32) (*os.File, error) {
	attributes := struct { // union bpf_attr for BPF_MAP_CREATE, its beginning
		kind, key, value, entries, flags uint32
	}{unix.BPF_MAP_TYPE_ARRAY, 4, size, 1, unix.BPF_F_MMAPABLE}
	f, err := bpf(unix.BPF_MAP_CREATE, unsafe.Pointer(&attributes), unsafe.Sizeof(attributes), "array")
	runtime.KeepAlive(&attributes)
	return f, wrap("make BPF map", err)
}

// point is r = where the one value of an array is.
func (a *assembly) point(target uint8, array *os.File) {
	a.add(unix.BPF_LD|unix.BPF_IMM|unix.BPF_DW, target, unix.BPF_PSEUDO_MAP_VALUE, 0, int32(array.Fd()))
	a.add(0, 0, 0, 0, 0) // the upper half: offset 0
}

// Frames are lost on the router's end of each link: those from the node before
// the router sees them, those to the node after it has sent them. So both ends'
// programs see the same losses as with a bad cable.

const maxLoss = 0.5 // each way; TCP hardly moves beyond

func validLoss(p float64) error {
	if p >= 0 && p <= maxLoss { // NaN is neither
		return nil
	}
	return fmt.Errorf("testbed: loss of %v of the frames: say 0 to %v", p, maxLoss)
}

// SetLoss loses every frame on every link between router and nodes with this
// probability from now on, in each direction, independently of all others:
// neighbour discovery and ARP, too. A link that Revive lays loses nothing until
// it stands.
func (b *Bed) SetLoss(p float64) error {
	if err := validLoss(p); err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.over {
		return errClosed
	}
	return b.setLoss(p)
}

func (b *Bed) setLoss(p float64) error {
	if p > 0 && !b.lossy {
		for _, n := range b.Nodes() {
			if n.dead {
				continue
			}
			if err := b.fray(n); err != nil {
				return fmt.Errorf("testbed: loss: %w", err)
			}
		}
		b.lossy = true
	}
	b.programs.shared.threshold.Store(uint32(p * (1 << 32)))
	return nil
}

// fray puts the losing programs on both directions of a node's link.
func (b *Bed) fray(n *Node) error {
	if err := b.receive(n.Link, b.programs.lose); err != nil {
		return err
	}
	return b.Router.space.filter(n.Link, netlink.HANDLE_MIN_EGRESS, b.programs.loseOut)
}

// Lost counts the frames lost so. It fails once the bed is closed.
func (b *Bed) Lost() (uint64, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.over {
		return 0, errClosed
	}
	return b.programs.shared.lost.Load(), nil
}

// losing drops a frame if a random word is below the threshold.
func losing(array *os.File, drop, pass int32) *assembly {
	const getRandom = 7 // bpf_get_prandom_u32
	a := newAssembly()
	a.point(r6, array)
	a.add(unix.BPF_JMP|unix.BPF_CALL, 0, 0, 0, getRandom)
	a.read(unix.BPF_W, r2, r6, atThreshold)
	a.compare(unix.BPF_JGE, r0, r2, "pass")
	a.count(r6, atLost)
	a.leave(drop)
	a.label("pass")
	a.leave(pass)
	return a
}
