package api

import (
	"io"
	"net"
	"os"
	"testing"
	"time"
)

// TestHalfRequests: clients that ask half a question hold few descriptors of the daemon's, and keep no other
// client from its answer.
func TestHalfRequests(t *testing.T) {
	path := socket(t)
	answering(t, path, func() (Status, error) { return Status{Node: "n"}, nil })
	descriptors := func() int {
		all, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Fatal(err)
		}
		return len(all)
	}
	before := descriptors()
	var halves []net.Conn
	for i := range 4 * mostConns {
		conn, err := net.Dial("unix", path)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		halves = append(halves, conn)
		if i%2 == 0 { // the other half sends nothing
			io.WriteString(conn, "GET /status HTTP/1.1\r\nHo")
		}
		if i%8 == 0 {
			if s, err := Ask(t.Context(), path); err != nil || s.Node != "n" {
				t.Fatalf("beside %d half requests: %+v, %v", i, s, err)
			}
		}
	}
	if held := descriptors() - before - len(halves); held > mostConns+8 {
		t.Errorf("the daemon holds %d descriptors", held)
	}
	halves[0].SetReadDeadline(time.Now().Add(10 * time.Second))
	if _, err := halves[0].Read(make([]byte, 1)); err == nil || os.IsTimeout(err) {
		t.Errorf("the oldest half is still open: %v", err)
	}
}

// TestManyWait: a daemon with too many waiting connections still has its socket, which is not taken for a stale one.
func TestManyWait(t *testing.T) {
	path := socket(t)
	listen(t, path) // and does not accept
	for {
		conn, err := net.Dial("unix", path)
		if err != nil {
			break // no more can wait
		}
		defer conn.Close()
	}
	if l, err := Listen(path); err == nil {
		l.Close()
		t.Error("a second daemon took the socket of the first")
	}
}
