package traffic

import (
	"context"
	"net"
	"net/netip"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"proffer/lab/traffic/responder"
)

// How a flow may stand, beside the outcomes of a request.
const (
	Closed Outcome = "closed" // the server ended the connection in good order (FIN)
	Silent Outcome = "silent" // no answer in time; a later one may come
)

// Answer is the outcome of one flow's exchange.
type Answer struct {
	From    netip.AddrPort // the client's end
	Server  string         // the server that answered; empty: none
	Outcome Outcome        // OK: alive
	Cause   string         // why, if Outcome is not OK
}

// Flows are many flows that live long and talk to an Echo now and then. Not
// safe for concurrent use.
type Flows struct {
	flows  []*flow
	rounds int
}

// OpenFlows opens TCP connections and returns when each is open or has failed;
// those that failed are dead, as their answers will show.
func OpenFlows(ctx context.Context, d Dial) (*Flows, error) {
	lines, err := d.connect(ctx)
	if err != nil {
		return nil, err
	}
	return flowsOf(d, lines, newTCPFlow), nil
}

// OpenDatagrams opens UDP sockets, which no peer sees before the first Exchange.
// Each receives only packets from d.To: an answer from another address is none.
// None of them ever dies.
func OpenDatagrams(d Dial) (*Flows, error) {
	sockets, err := d.sockets(openDatagram)
	if err != nil {
		return nil, err
	}
	lines := make([]line, len(sockets))
	for i, s := range sockets {
		if lines[i].err = s.err; s.err == nil {
			file := os.NewFile(uintptr(s.fd), "socket")
			lines[i].conn, lines[i].err = net.FileConn(file)
			_ = file.Close() // FileConn has a copy
		}
	}
	return flowsOf(d, lines, newUDPFlow), nil
}

func flowsOf(d Dial, lines []line, newFlow func(net.Conn) *flow) *Flows {
	f := &Flows{}
	for i, l := range lines {
		if l.err == nil {
			f.flows = append(f.flows, newFlow(l.conn))
			continue
		}
		last := Answer{From: d.From[i], Outcome: outcomeOf(l.err), Cause: l.err.Error()}
		f.flows = append(f.flows, &flow{last: last})
	}
	return f
}

// Exchange lets every living flow send one line and wait for its answer, all at
// the same time, and returns one answer a flow in the order of Dial.From. A flow
// that was reset, closed or never opened stays dead: its answer is its last. When
// ctx ends, a flow without an answer is Silent.
func (f *Flows) Exchange(ctx context.Context, timeout time.Duration) []Answer {
	f.rounds++
	deadline := time.Now().Add(timeout)
	f.setDeadline(deadline)
	// Not before the line above, which would undo it.
	stop := context.AfterFunc(ctx, func() { f.setDeadline(time.Unix(1, 0)) })
	defer stop()
	var talking sync.WaitGroup
	for _, flow := range f.flows {
		if flow.conn != nil {
			talking.Go(func() { flow.exchange(f.rounds) })
		}
	}
	talking.Wait()
	answers := make([]Answer, len(f.flows))
	for i, flow := range f.flows {
		answers[i] = flow.last
		if flow.dead() {
			flow.hangUp()
		}
	}
	return answers
}

func (f *Flows) setDeadline(at time.Time) {
	for _, flow := range f.flows {
		if flow.conn != nil {
			_ = flow.conn.SetDeadline(at) // it fails for a closed one
		}
	}
}

// Servers lists, in the order of Dial.From, the server that answered each flow last; empty:
// no server ever did.
func (f *Flows) Servers() []string {
	servers := make([]string, len(f.flows))
	for i, flow := range f.flows {
		servers[i] = flow.server
	}
	return servers
}

// Close ends all flows. A second Close does nothing.
func (f *Flows) Close() error {
	for _, flow := range f.flows {
		flow.hangUp()
	}
	return nil
}

// openDatagram returns a UDP socket from one address to the other. It sends
// nothing.
func openDatagram(from, to netip.AddrPort) (int, error) {
	family := unix.AF_INET6
	if to.Addr().Is4() {
		family = unix.AF_INET
	}
	fd, err := unix.Socket(family, unix.SOCK_DGRAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, os.NewSyscallError("socket", err)
	}
	if from.IsValid() {
		err = os.NewSyscallError("bind", unix.Bind(fd, responder.Sockaddr(from)))
	}
	if err == nil {
		err = os.NewSyscallError("connect", unix.Connect(fd, responder.Sockaddr(to)))
	}
	if err != nil {
		unix.Close(fd)
		return -1, err
	}
	return fd, nil
}
