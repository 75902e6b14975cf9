package testbed

import (
	"fmt"
	"os"
	"runtime"
	"unsafe"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// A veth end takes what its peer returns by XDP_TX only from NAPI, and the
// kernel wakes NAPI for it only if an XDP program sits on the end: GRO alone
// makes the driver queue the frames and forget them until some other frame
// comes (veth_xdp_flush, measured on 6.18). So each of the router's ends
// carries the smallest program there is: return XDP_PASS.

// loadPass loads that program. Two instructions need no loader; what the
// daemons run is another package's affair.
func loadPass() (*os.File, error) {
	const xdpPass = 2
	const wide = 8 // bytes of an instruction (linux/bpf.h, struct bpf_insn)
	program := [2][wide]byte{
		{0: unix.BPF_ALU64 | unix.BPF_MOV | unix.BPF_K}, // r0 = XDP_PASS
		{0: unix.BPF_JMP | unix.BPF_EXIT},
	}
	*(*int32)(unsafe.Pointer(&program[0][4])) = xdpPass
	license := [...]byte{'G', 'P', 'L', 0}
	attributes := struct { // union bpf_attr for BPF_PROG_LOAD, its beginning
		kind, instructions uint32
		program            *[2][wide]byte
		license            *[4]byte
	}{unix.BPF_PROG_TYPE_XDP, uint32(len(program)), &program, &license}
	fd, _, errno := unix.Syscall(unix.SYS_BPF, unix.BPF_PROG_LOAD, uintptr(unsafe.Pointer(&attributes)), unsafe.Sizeof(attributes))
	runtime.KeepAlive(&attributes)
	if errno != 0 {
		return nil, fmt.Errorf("testbed: load XDP program: %w", errno)
	}
	unix.CloseOnExec(int(fd))
	return os.NewFile(fd, "xdp pass"), nil
}

// wake attaches the program to an interface of the router.
func (b *Bed) wake(name string) error {
	return b.Router.Do(func() error {
		link, err := netlink.LinkByName(name)
		if err == nil {
			err = netlink.LinkSetXdpFdWithFlags(link, int(b.pass.Fd()), unix.XDP_FLAGS_DRV_MODE)
		}
		return wrap("attach XDP program to "+name, err)
	})
}
