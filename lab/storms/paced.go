package storms

import (
	"net"
	"time"
)

// streamRate is the highest rate of one bulk stream, in bytes a second: streams that
// fill the machine's cores would show its limits, not the effect of a death.
const streamRate = 1 << 20

// streamBuffer bounds the bytes that an upload still has to read at its end: a quarter of a
// second's worth.
const streamBuffer = streamRate / 4

// paced is a listener with connections that move at most streamRate each way:
// TCP's own window holds the other end back.
type paced struct{ net.Listener }

func (p paced) Accept() (net.Conn, error) {
	conn, err := p.Listener.Accept()
	if err != nil {
		return nil, err
	}
	if tcp, ok := conn.(*net.TCPConn); ok { // these fail for a connection that has gone
		_ = tcp.SetKeepAlive(false)
		_ = tcp.SetReadBuffer(streamBuffer)
	}
	return pacedConn{conn}, nil
}

type pacedConn struct{ net.Conn }

func (c pacedConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	rest(n)
	return n, err
}

func (c pacedConn) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	rest(n)
	return n, err
}

// rest is as long as so many bytes take.
func rest(bytes int) { time.Sleep(time.Duration(bytes) * time.Second / streamRate) }
