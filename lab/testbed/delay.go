package testbed

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// The delay box stands in for a long way between client and router, since not
// every kernel has netem. It is a cable with memory: a frame that enters one
// end leaves the other the delay later, in order and unchanged.
//
//	client eth0 ── client [delay] router ── client [router]
//
// One thread a direction reads, keeps and sends; nothing is shared between them.

const (
	maxDelay    = 500 * time.Millisecond
	maxFrame    = 14 + MTU
	queueFrames = 8192 // a direction: 12 MB, 480 MB/s at 25 ms
)

type delayBox struct {
	lanes [2]*lane
	stop  int // eventfd, readable once the box closes
	group sync.WaitGroup
}

// layDelay lays the client's cable through the delay box.
func (b *Bed) layDelay(delay time.Duration) error {
	const toClient, toRouter = "client", "router"
	box := &b.delayNS.space
	if err := b.joinRouter(b.Client, end{box, toRouter}); err != nil {
		return err
	}
	if err := join(end{box, toClient}, end{&b.Client.space, device}); err != nil {
		return err
	}
	return b.delayNS.Do(func() (err error) {
		b.box, err = newDelayBox(toClient, toRouter, delay)
		return wrap("testbed: delay box", err)
	})
}

// newDelayBox joins two interfaces of the thread's namespace.
func newDelayBox(a, b string, delay time.Duration) (*delayBox, error) {
	left, err := tap(a)
	if err != nil {
		return nil, err
	}
	right, err := tap(b)
	if err != nil {
		unix.Close(left)
		return nil, err
	}
	stop, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		unix.Close(left)
		unix.Close(right)
		return nil, err
	}
	box := &delayBox{stop: stop, lanes: [2]*lane{
		{in: left, out: right, delay: delay},
		{in: right, out: left, delay: delay},
	}}
	for _, l := range box.lanes {
		box.group.Go(func() { l.run(stop) })
	}
	return box, nil
}

func (b *delayBox) drops() uint64 {
	return b.lanes[0].dropped.Load() + b.lanes[1].dropped.Load()
}

// close stops both directions; frames on their way are lost, uncounted.
func (b *delayBox) close() {
	unix.Write(b.stop, binary.NativeEndian.AppendUint64(nil, 1))
	b.group.Wait()
	unix.Close(b.lanes[0].in)
	unix.Close(b.lanes[1].in)
	unix.Close(b.stop)
}

// tap opens a raw socket that receives every frame that arrives at an
// interface, and none that leaves it.
func tap(name string) (int, error) {
	link, err := net.InterfaceByName(name)
	if err != nil {
		return -1, fmt.Errorf("find %s: %w", name, err)
	}
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, fmt.Errorf("open packet socket: %w", err)
	}
	all := binary.BigEndian.Uint16(binary.NativeEndian.AppendUint16(nil, unix.ETH_P_ALL)) // htons
	err = errors.Join(
		unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_IGNORE_OUTGOING, 1),
		unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_QDISC_BYPASS, 1),
		unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, queueFrames*1024),
		unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: all, Ifindex: link.Index}),
	)
	if err != nil {
		unix.Close(fd)
		return -1, fmt.Errorf("tap %s: %w", name, err)
	}
	return fd, nil
}

// lane is one direction. The queue is a ring; slots keep their buffers.
type lane struct {
	in, out int
	delay   time.Duration
	dropped atomic.Uint64

	queue       [queueFrames]frame
	first, size int
	overflow    [maxFrame + 1]byte // where frames go that find the queue full
}

type frame struct {
	due  time.Time
	data []byte
}

// run forwards until stop is readable. The kernel wakes it on the nanosecond
// timer of ppoll: Go's own timers are some ms late.
func (l *lane) run(stop int) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	const exact, usual = 1, 0 // ns; by default the kernel may be 50 µs late
	_ = unix.Prctl(unix.PR_SET_TIMERSLACK, exact, 0, 0, 0)
	defer unix.Prctl(unix.PR_SET_TIMERSLACK, usual, 0, 0, 0)
	for {
		fds := []unix.PollFd{{Fd: int32(l.in), Events: unix.POLLIN}, {Fd: int32(stop), Events: unix.POLLIN}}
		if _, err := unix.Ppoll(fds, l.sleep(), nil); err != nil && !errors.Is(err, unix.EINTR) {
			return
		}
		if fds[1].Revents != 0 || !l.receive() {
			return
		}
		l.send()
	}
}

// sleep is how long the first frame has to wait; nil means for ever.
func (l *lane) sleep() *unix.Timespec {
	if l.size == 0 {
		return nil
	}
	left := unix.NsecToTimespec(max(0, time.Until(l.queue[l.first].due).Nanoseconds()))
	return &left
}

// receive queues the frames that have arrived; false means that the interface is gone.
// A frame's delay begins when it is read, so that it is never too short.
func (l *lane) receive() bool {
	const batch = 64 // then see whether something is due
	for range batch {
		n, err := unix.Read(l.in, l.slot())
		switch {
		case errors.Is(err, unix.EAGAIN), errors.Is(err, unix.EINTR):
			return true
		case err != nil:
			return false
		case l.size == queueFrames || n > maxFrame:
			l.dropped.Add(1)
		default:
			f := &l.queue[(l.first+l.size)%queueFrames]
			f.due, f.data = time.Now().Add(l.delay), f.data[:n]
			l.size++
		}
	}
	l.countOverruns()
	return true
}

// countOverruns adds the frames that the kernel dropped because we read too slowly,
// after more than one batch. The kernel's count starts again when it is read.
func (l *lane) countOverruns() {
	if stats, err := unix.GetsockoptTpacketStats(l.in, unix.SOL_PACKET, unix.PACKET_STATISTICS); err == nil {
		l.dropped.Add(uint64(stats.Drops))
	}
}

// slot is the buffer for the next frame, one byte too long to spot frames that are.
func (l *lane) slot() []byte {
	if l.size == queueFrames {
		return l.overflow[:]
	}
	f := &l.queue[(l.first+l.size)%queueFrames]
	if f.data == nil {
		f.data = make([]byte, maxFrame+1)
	}
	f.data = f.data[:maxFrame+1]
	return f.data
}

// send lets go of the frames that are due.
func (l *lane) send() {
	for l.size > 0 && !time.Now().Before(l.queue[l.first].due) {
		f := &l.queue[l.first]
		if _, err := unix.Write(l.out, f.data); err != nil {
			l.dropped.Add(1)
		}
		l.first = (l.first + 1) % queueFrames
		l.size--
	}
}
