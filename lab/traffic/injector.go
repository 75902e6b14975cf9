package traffic

import (
	"fmt"
	"net"
	"os"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// injector is a packet socket that hands frames to an interface's driver, a
// batch a system call, without any queueing discipline between.
type injector struct {
	fd       int
	frames   [batch][]byte // ours: a maker of frames may use one buffer
	vectors  [batch]unix.Iovec
	messages [batch]message
}

// message is struct mmsghdr (sendmmsg(2)).
type message struct {
	header unix.Msghdr
	sent   uint32
}

// openInjector opens one in the calling thread's namespace.
func openInjector(name string) (*injector, error) {
	dev, err := net.InterfaceByName(name)
	if err != nil {
		return nil, fmt.Errorf("find interface: %w", err)
	}
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0) // protocol 0: it receives nothing
	if err != nil {
		return nil, fmt.Errorf("open packet socket (needs CAP_NET_RAW): %w", err)
	}
	out := &injector{fd: fd}
	if err := out.prepare(dev.Index); err != nil {
		out.close()
		return nil, err
	}
	return out, nil
}

func (out *injector) prepare(device int) error {
	if err := unix.SetsockoptInt(out.fd, unix.SOL_PACKET, unix.PACKET_QDISC_BYPASS, 1); err != nil {
		return fmt.Errorf("set PACKET_QDISC_BYPASS: %w", err)
	}
	if err := unix.Bind(out.fd, &unix.SockaddrLinklayer{Ifindex: device}); err != nil {
		return fmt.Errorf("bind packet socket: %w", err)
	}
	for i := range out.messages {
		out.messages[i].header.Iov = &out.vectors[i]
		out.messages[i].header.SetIovlen(1)
	}
	return nil
}

// send sends the n frames from first on and returns how many the interface
// took: fewer when its queue is full.
func (out *injector) send(first, n int, frame func(int) []byte) (sent int, err error) {
	for sent < n {
		some := min(batch, n-sent)
		for i := range some {
			out.put(i, frame(first+sent+i))
		}
		left, err := out.flush(0, some)
		sent += left
		if err != nil || left == 0 {
			return sent, err
		}
	}
	return sent, nil
}

// put copies a frame into a place of the batch.
func (out *injector) put(i int, frame []byte) {
	out.frames[i] = append(out.frames[i][:0], frame...)
	out.vectors[i].Base = unsafe.SliceData(out.frames[i])
	out.vectors[i].SetLen(len(out.frames[i]))
}

// flush sends the frames of the batch from first on, before the end. The kernel names an error only if
// it is the first frame's, so the remaining frames are sent again.
func (out *injector) flush(first, end int) (sent int, err error) {
	for n := end - first; sent < n; {
		left, _, errno := unix.Syscall6(unix.SYS_SENDMMSG, uintptr(out.fd),
			uintptr(unsafe.Pointer(&out.messages[first+sent])), uintptr(n-sent), unix.MSG_DONTWAIT, 0, 0)
		switch {
		case errno == 0:
			sent += int(left)
		case errno == unix.ENOBUFS, errno == unix.EAGAIN: // the driver's queue is full, or the socket's
			return sent, nil
		case errno != unix.EINTR:
			return sent, os.NewSyscallError("sendmmsg", errno)
		}
	}
	runtime.KeepAlive(out)
	return sent, nil
}

func (out *injector) close() { unix.Close(out.fd) }
