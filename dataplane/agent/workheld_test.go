package agent_test

import (
	"fmt"
	"os/exec"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"proffer/proof/rig"
)

// The load measure `work`, of requests that a task has read and not answered.

// eventLoop reads of all connections that can be read, and then answers them; "never" has no
// answer. "0" and "1" wait for a gate each, with all that is read after them. Of long ones a part
// is read.
const eventLoop = `
import os, select, socket, sys
l = socket.create_server((sys.argv[1], int(sys.argv[2])), family=socket.AF_INET6, backlog=512)
at, e = {l.fileno(): l}, select.epoll()
e.register(l, select.EPOLLIN)
while True:
    owed = []
    for fd, _ in e.poll():
        if fd == l.fileno():
            c = l.accept()[0]
            at[c.fileno()] = c
            e.register(c, select.EPOLLIN)
            continue
        text = at[fd].recv(4096)
        if text[:1] in (b"0", b"1"):
            os.close(os.open(sys.argv[3 + int(text[:1])], os.O_RDONLY))
        if text and text != b"never":
            owed.append(at[fd])
    for c in owed:
        c.send(b"ok")
`

// stopped has a server stand still meanwhile.
func stopped(t *testing.T, cmd *exec.Cmd, meanwhile func()) {
	t.Helper()
	if err := unix.Kill(cmd.Process.Pid, unix.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	var status unix.WaitStatus
	if _, err := unix.Wait4(cmd.Process.Pid, &status, unix.WUNTRACED, nil); err != nil || !status.Stopped() {
		t.Fatal(status, err)
	}
	meanwhile()
	if err := unix.Kill(cmd.Process.Pid, unix.SIGCONT); err != nil {
		t.Fatal(err)
	}
}

func sendAll(t *testing.T, fds []int, text string) {
	t.Helper()
	for _, fd := range fds {
		send(t, fd, text)
	}
}

// TestWorkHeld: requests that an event loop has read, and that wait there for their turn, are
// work; in the next round, those without an answer are none, though the loop never waited.
func TestWorkHeld(t *testing.T) {
	r := newWorkRig(t)
	first, openFirst := gate(t)
	second, openSecond := gate(t)
	cmd := serve(t, workPort, "python3", "-c", eventLoop, rig.VipAddr.String(), fmt.Sprint(workPort), first, second)
	fds := clients(t, 16, 20000, "ask")
	answered(t, fds)
	settles(r, t, "16 idle connections", 0, 0)
	asks, nevers := fds[:9], fds[9:14]
	stopped(t, cmd, func() {
		sendAll(t, asks, "ask")
		sendAll(t, nevers, "never")
		send(t, fds[14], "0")
	})
	settles(r, t, "15 read in a round", 15, 15)
	for range 2 {
		if err := r.RecountWork(); err != nil {
			t.Fatal(err)
		}
	}
	settles(r, t, "counted again", 15, 15)
	send(t, fds[15], "1")
	settles(r, t, "and one that is unread", 16, 16)
	openFirst()
	answered(t, asks)
	answered(t, fds[14:15])
	settles(r, t, "one read in the next round", 1, 1)
	openSecond()
	answered(t, fds[15:])
	settles(r, t, "answered", 0, 0)
}

// TestWorkPartRead: a request of which a part is read is one, alone and among others.
func TestWorkPartRead(t *testing.T) {
	r := newWorkRig(t)
	first, openFirst := gate(t)
	second, openSecond := gate(t)
	cmd := serve(t, workPort, "python3", "-c", eventLoop, rig.VipAddr.String(), fmt.Sprint(workPort), first, second)
	fds := clients(t, 6, 20000, "ask")
	answered(t, fds)
	rest := strings.Repeat("x", 5000)
	send(t, fds[0], "0"+rest)
	settles(r, t, "a part", 1, 1)
	openFirst()
	answered(t, fds[:1])
	settles(r, t, "the rest", 0, 0)
	stopped(t, cmd, func() {
		sendAll(t, fds[1:4], "ask")
		send(t, fds[4], rest)
		send(t, fds[5], "1")
	})
	settles(r, t, "a part among others", 5, 5)
	openSecond()
	answered(t, fds[1:])
	settles(r, t, "answered", 0, 0)
}

// TestWorkNeverAnswered: clients that wait for a message of another are no work, whether their
// requests come singly, all at once, or beside a request that has an answer.
func TestWorkNeverAnswered(t *testing.T) {
	r := newWorkRig(t)
	cmd := serve(t, workPort, "python3", "-c", eventLoop, rig.VipAddr.String(), fmt.Sprint(workPort))
	fds := clients(t, 200, 20000, "never")
	settles(r, t, "one by one", 0, 0)
	stopped(t, cmd, func() { sendAll(t, fds, "never") })
	settles(r, t, "all at once", 0, 0)
	stopped(t, cmd, func() {
		sendAll(t, fds[:100], "never")
		send(t, fds[100], "ask")
	})
	answered(t, fds[100:101])
	settles(r, t, "with a request", 0, 0)
}

// pool has a thread that accepts connections, greets their clients and waits for requests. Threads
// of a pool read them and answer; "slow" and "close" wait for the gate, by a lock, and "never" and
// "close" have no answer.
const pool = `
import os, queue, select, socket, sys, threading
l = socket.create_server((sys.argv[1], int(sys.argv[2])), family=socket.AF_INET6, backlog=512)
at, e, jobs, opened = {l.fileno(): l}, select.epoll(), queue.SimpleQueue(), threading.Event()
def watch():
    os.close(os.open(sys.argv[3], os.O_RDONLY))
    opened.set()
def work():
    while True:
        c = jobs.get()
        text = c.recv(4096)
        if text in (b"slow", b"close"):
            opened.wait()
        try:
            if text == b"close" or not text:
                c.close()
                continue
            if text != b"never":
                c.send(b"ok")
        except OSError:
            c.close()
            continue
        e.modify(c, select.EPOLLIN | select.EPOLLONESHOT)
threading.Thread(target=watch, daemon=True).start()
for _ in range(32):
    threading.Thread(target=work, daemon=True).start()
e.register(l, select.EPOLLIN)
while True:
    for fd, _ in e.poll():
        if fd != l.fileno():
            jobs.put(at[fd])
            continue
        c = l.accept()[0]
        c.send(b"hello")
        at[c.fileno()] = c
        e.register(c, select.EPOLLIN | select.EPOLLONESHOT)
`

func servePool(t *testing.T) (open func()) {
	t.Helper()
	path, open := gate(t)
	serve(t, workPort, "python3", "-c", pool, rig.VipAddr.String(), fmt.Sprint(workPort), path)
	return open
}

// greeted opens n connections to the pool.
func greeted(t *testing.T, n int, from uint16) []int {
	t.Helper()
	fds := clients(t, n, from, "")
	answered(t, fds)
	return fds
}

// TestWorkPool: a thread that got a connection from another, and waits with its request as it
// waits for its next connection, by a lock, is a request until it answers, or cannot.
func TestWorkPool(t *testing.T) {
	r := newWorkRig(t)
	open := servePool(t)
	fds := greeted(t, 10, 22000)
	sendAll(t, fds, "ask")
	answered(t, fds)
	fds = append(fds, greeted(t, 10, 23000)...)
	settles(r, t, "20 idle connections, 32 threads", 0, 0)
	sendAll(t, fds[:15], "slow")
	sendAll(t, fds[15:], "close")
	settles(r, t, "20 slow requests", 20, 20)
	for _, fd := range fds[10:15] {
		rig.Reset(t, fd)
	}
	settles(r, t, "5 of them reset", 20, 20) // the threads wait on
	open()
	answered(t, fds[:10])
	settles(r, t, "answered", 0, 0)
	sendAll(t, fds[:10], "ask")
	answered(t, fds[:10])
	settles(r, t, "asked again", 0, 0)
}

// TestWorkOneWay: threads of a pool that have read messages without an answer have no request.
func TestWorkOneWay(t *testing.T) {
	r := newWorkRig(t)
	servePool(t)
	fds := greeted(t, 20, 22000)
	for range 3 {
		sendAll(t, fds, "never")
		settles(r, t, "20 messages", 0, 0)
	}
}
