package testbed

import (
	"container/heap"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"net"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// The delay box stands in for a long way between client and router, since not
// every kernel has netem. It is a cable with memory: a frame that enters one
// end leaves the other its delay later, unchanged. As with netem, a frame
// of a shorter delay overtakes others; of equal delays, all stay in order.
//
//	client eth0 ── client [delay] router ── client [router]
//
// One thread a direction reads, keeps and sends; nothing is shared between them.

const (
	maxDelay    = 500 * time.Millisecond // of any frame
	maxFrame    = 14 + MTU
	queueFrames = 8192 // a direction: 12 MB, 480 MB/s at 25 ms
)

type delayBox struct {
	lanes [2]*lane
	stop  int // eventfd, readable once the box closes
	group sync.WaitGroup
}

// layDelay lays the client's cable through the delay box.
func (b *Bed) layDelay(delay Delay) error {
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
func newDelayBox(a, b string, delay Delay) (*delayBox, error) {
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
		newLane(left, right, delay, 1),
		newLane(right, left, delay, 2),
	}}
	for _, l := range box.lanes {
		box.group.Go(func() { l.run(stop) })
	}
	return box, nil
}

func (b *delayBox) drops() uint64 {
	return b.lanes[0].dropped.Load() + b.lanes[1].dropped.Load()
}

// late is how long after their time frames have left, on average.
func (b *delayBox) late() time.Duration {
	late := b.lanes[0].late.Load() + b.lanes[1].late.Load()
	return time.Duration(late / max(1, b.lanes[0].sent.Load()+b.lanes[1].sent.Load()))
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

// lane is a direction.
type lane struct {
	in, out int
	delays  *delays
	dropped atomic.Uint64
	sent    atomic.Int64
	late    atomic.Int64 // ns, of all that were sent

	queue    inOrderOfDue
	spare    []*frame // not in the queue
	received uint64
}

// frame keeps its buffer, one byte too long to spot frames that are.
type frame struct {
	due    time.Time
	number uint64 // of equal ones, the first to come is the first to leave
	size   int
	data   [maxFrame + 1]byte
}

func newLane(in, out int, d Delay, seed uint64) *lane {
	return &lane{in: in, out: out, delays: newDelays(d, rand.New(rand.NewPCG(seed, 0)))}
}

// run forwards until stop is readable. The thread ends with it.
func (l *lane) run(stop int) {
	runtime.LockOSThread()
	punctual()
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

// punctual makes the kernel run this thread when its time has come: ppoll is late by 50 µs unless the
// slack is less (Go's own timers, by ms), and beside busy CPUs a thread of less weight waits for
// ms. No real-time class: such a thread would spin for a lock of Go's runtime that another holds.
// Without the permission it is late, as late shows.
func punctual() {
	_ = unix.Prctl(unix.PR_SET_TIMERSLACK, 1, 0, 0, 0) // ns
	_ = unix.Setpriority(unix.PRIO_PROCESS, unix.Gettid(), -20)
}

// sleep is how long the first frame has to wait; nil means for ever.
func (l *lane) sleep() *unix.Timespec {
	if len(l.queue) == 0 {
		return nil
	}
	left := unix.NsecToTimespec(max(0, time.Until(l.queue[0].due).Nanoseconds()))
	return &left
}

// receive queues the frames that have arrived; false means that the interface is gone.
// A frame's delay begins when it is read, so that it is never too short.
func (l *lane) receive() bool {
	const batch = 64 // then see whether something is due
	for range batch {
		f := l.free()
		n, err := unix.Read(l.in, f.data[:])
		keep := err == nil && n <= maxFrame && len(l.queue) < queueFrames
		if keep {
			l.keep(f, n)
			continue
		}
		l.spare = append(l.spare, f)
		switch {
		case errors.Is(err, unix.EAGAIN), errors.Is(err, unix.EINTR):
			return true
		case err != nil:
			return false
		}
		l.dropped.Add(1)
	}
	l.countOverruns()
	return true
}

// free is a frame to read into.
func (l *lane) free() *frame {
	last := len(l.spare) - 1
	if last < 0 {
		return new(frame)
	}
	f := l.spare[last]
	l.spare = l.spare[:last]
	return f
}

func (l *lane) keep(f *frame, size int) {
	f.due, f.number, f.size = time.Now().Add(l.delays.next()), l.received, size
	l.received++
	heap.Push(&l.queue, f)
}

// countOverruns adds the frames that the kernel dropped because we read too slowly,
// after more than one batch. The kernel's count starts again when it is read.
func (l *lane) countOverruns() {
	if stats, err := unix.GetsockoptTpacketStats(l.in, unix.SOL_PACKET, unix.PACKET_STATISTICS); err == nil {
		l.dropped.Add(uint64(stats.Drops))
	}
}

// send lets go of the frames that are due.
func (l *lane) send() {
	for len(l.queue) > 0 && !time.Now().Before(l.queue[0].due) {
		f := heap.Pop(&l.queue).(*frame)
		l.late.Add(time.Since(f.due).Nanoseconds())
		l.sent.Add(1)
		if _, err := unix.Write(l.out, f.data[:f.size]); err != nil {
			l.dropped.Add(1)
		}
		l.spare = append(l.spare, f)
	}
}

// inOrderOfDue is a heap of frames.
type inOrderOfDue []*frame

func (q inOrderOfDue) Len() int      { return len(q) }
func (q inOrderOfDue) Swap(i, j int) { q[i], q[j] = q[j], q[i] }
func (q inOrderOfDue) Less(i, j int) bool {
	if !q[i].due.Equal(q[j].due) {
		return q[i].due.Before(q[j].due)
	}
	return q[i].number < q[j].number
}
func (q *inOrderOfDue) Push(x any) { *q = append(*q, x.(*frame)) }
func (q *inOrderOfDue) Pop() any {
	last := len(*q) - 1
	f := (*q)[last]
	*q = (*q)[:last]
	return f
}

// Delay is how long frames take through the delay box, one way. The zero value is no box.
//
// With a Deviation the delays follow Pareto's distribution, of a shape of 3 as in netem's
// (HLB §VI-D3, Figure 20: a long tail, no variance without end), of this mean and standard
// deviation. None is above 500 ms, which counts for little, and none below Mean less 0.58
// Deviation:
//
//	delay = Mean + Deviation · (P − 3/2) / √(3/4)    P(P > x) = x⁻³, x ≥ 1
//
// With a Correlation of ρ a frame has the delay of the frame before it, in its direction,
// with probability ρ, and else one of its own. So k frames later the correlation is ρᵏ, and
// the distribution stays, which netem's own mean of two random numbers narrows.
type Delay struct {
	Mean, Deviation time.Duration
	Correlation     float64 // 0 to below 1
}

// validate returns an error for a delay that no box has.
func (d Delay) validate() error {
	switch {
	case d.Mean < 0 || d.Mean > maxDelay:
		return fmt.Errorf("testbed: one-way delay of %v: say 0 to %v", d.Mean, maxDelay)
	case d.Deviation < 0 || d.Deviation > d.Mean:
		return fmt.Errorf("testbed: one-way delay of %v that deviates by %v: say 0 to %v", d.Mean, d.Deviation, d.Mean)
	case !(d.Correlation >= 0 && d.Correlation < 1):
		return fmt.Errorf("testbed: delays correlated by %v: say 0 to below 1", d.Correlation)
	}
	return nil
}

// delays draws a delay a frame.
type delays struct {
	of   Delay
	rng  *rand.Rand
	last time.Duration
	any  bool // there was one
}

func newDelays(d Delay, rng *rand.Rand) *delays { return &delays{of: d, rng: rng} }

func (d *delays) next() time.Duration {
	if d.of.Deviation == 0 {
		return d.of.Mean
	}
	if !d.any || d.rng.Float64() >= d.of.Correlation {
		d.any, d.last = true, d.of.at(d.rng.Float64())
	}
	return d.last
}

// at is the delay that so great a part of all, 0 to below 1, is less than.
func (d Delay) at(part float64) time.Duration {
	const shape = 3.0
	mean, deviation := shape/(shape-1), math.Sqrt(shape/(shape-2))/(shape-1)
	p := (math.Pow(1-part, -1/shape) - mean) / deviation
	return min(d.Mean+time.Duration(min(p*float64(d.Deviation), float64(maxDelay))), maxDelay)
}
