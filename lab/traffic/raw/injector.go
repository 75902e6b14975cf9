package raw

import (
	"fmt"
	"net"
	"os"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Injector is a packet socket that hands frames to an interface's driver, a
// batch a system call, without any queueing discipline between.
type Injector struct {
	fd       int
	frames   [Batch][]byte // ours: a maker of frames may use one buffer
	vectors  [Batch]unix.Iovec
	messages [Batch]message
}

// message is struct mmsghdr (sendmmsg(2)).
type message struct {
	header unix.Msghdr
	sent   uint32
}

// OpenInjector opens one in the calling thread's namespace.
func OpenInjector(name string) (*Injector, error) {
	dev, err := net.InterfaceByName(name)
	if err != nil {
		return nil, fmt.Errorf("find interface: %w", err)
	}
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0) // protocol 0: it receives nothing
	if err != nil {
		return nil, fmt.Errorf("open packet socket (needs CAP_NET_RAW): %w", err)
	}
	out := &Injector{fd: fd}
	if err := out.prepare(dev.Index); err != nil {
		out.Close()
		return nil, err
	}
	return out, nil
}

func (out *Injector) prepare(device int) error {
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
func (out *Injector) send(first, n int, frame func(int) []byte) (sent int, err error) {
	for sent < n {
		some := min(Batch, n-sent)
		for i := range some {
			out.Put(i, frame(first+sent+i))
		}
		left, err := out.Flush(0, some)
		sent += left
		if err != nil || left == 0 {
			return sent, err
		}
	}
	return sent, nil
}

// Put copies a frame into a place of the batch.
func (out *Injector) Put(i int, frame []byte) {
	out.frames[i] = append(out.frames[i][:0], frame...)
	out.vectors[i].Base = unsafe.SliceData(out.frames[i])
	out.vectors[i].SetLen(len(out.frames[i]))
}

// Flush sends the frames of the batch from first on, before the end. The kernel names an error only if
// it is the first frame's, so the remaining frames are sent again.
func (out *Injector) Flush(first, end int) (sent int, err error) {
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

func (out *Injector) Close() { unix.Close(out.fd) }
