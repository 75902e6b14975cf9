package traffic

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// flow is one of Flows. Its id is the client's end, which tells it from all
// others of a test.
type flow struct {
	conn    net.Conn // nil: dead
	id, end string   // end: the end of a message
	next    func() (string, error)
	mortal  bool // an end is for ever
	server  string
	last    Answer
}

func newTCPFlow(conn net.Conn) *flow {
	from := conn.LocalAddr().(*net.TCPAddr).AddrPort()
	f := newFlow(conn, from)
	f.end, f.mortal = "\n", true
	lines, begun := bufio.NewReaderSize(conn, 256), ""
	f.next = func() (string, error) {
		text, err := lines.ReadString('\n')
		begun += text // a deadline may cut a line in two
		if err != nil {
			return "", err
		}
		text, begun = begun, ""
		return text, nil
	}
	return f
}

func newUDPFlow(conn net.Conn) *flow {
	f := newFlow(conn, conn.LocalAddr().(*net.UDPAddr).AddrPort())
	buffer := make([]byte, 256)
	f.next = func() (string, error) {
		n, err := conn.Read(buffer)
		return string(buffer[:n]), err
	}
	return f
}

func newFlow(conn net.Conn, from netip.AddrPort) *flow {
	return &flow{conn: conn, id: from.String(), last: Answer{From: from}}
}

func (f *flow) exchange(round int) {
	server, err := f.ask(round)
	f.last = Answer{From: f.last.From, Server: server, Outcome: standing(err)}
	if err != nil {
		f.last.Cause = err.Error()
		return
	}
	f.server = server
}

func (f *flow) ask(round int) (server string, err error) {
	if _, err := fmt.Fprintf(f.conn, "%s %d%s", f.id, round, f.end); err != nil {
		return "", err
	}
	for {
		text, err := f.next()
		if err != nil {
			return "", err
		}
		server, answered, err := f.parse(text)
		if err != nil || answered == round {
			return server, err
		}
		// An earlier round's, in which this flow was silent.
	}
}

func (f *flow) parse(text string) (server string, round int, err error) {
	fields := strings.Fields(text)
	if len(fields) != 3 || fields[1] != f.id {
		return "", 0, fmt.Errorf("answer to %s is %q, another's", f.id, text)
	}
	round, err = strconv.Atoi(fields[2])
	return fields[0], round, err
}

// standing is how a flow stands after an exchange that ended so. EPIPE is the error of a
// send after a FIN and a RST, and the FIN came first.
func standing(err error) Outcome {
	switch outcome := outcomeOf(err); {
	case errors.Is(err, io.EOF), errors.Is(err, unix.EPIPE):
		return Closed
	case outcome == TimedOut && !errors.Is(err, unix.ETIMEDOUT):
		return Silent
	default:
		return outcome
	}
}

func (f *flow) dead() bool {
	return f.mortal && f.last.Outcome != OK && f.last.Outcome != Silent
}

func (f *flow) hangUp() {
	if f.conn != nil {
		_ = f.conn.Close()
		f.conn = nil
	}
}
