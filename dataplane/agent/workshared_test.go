package agent_test

import (
	"fmt"
	"testing"
	"time"

	"proffer/dataplane/objects"
	"proffer/proof/rig"
	"proffer/topo"
	"proffer/wire"
)

// The load measure `work`, of connections to another server that many requests share.

// proxy sends each byte on to another server, on a connection that all share, or on one for each
// client; the next byte that comes back on it is the answer.
const proxy = `
import select, socket, sys
l = socket.create_server((sys.argv[1], int(sys.argv[2])), family=socket.AF_INET6, backlog=512)
def opened(): return socket.create_connection((sys.argv[1], int(sys.argv[3])))
common = opened() if sys.argv[4] == "shared" else None
at, e, waiting, next = {l.fileno(): l}, select.epoll(), {}, {}
def watch(s):
    at[s.fileno()] = s
    e.register(s, select.EPOLLIN)
watch(l)
if common:
    watch(common)
    waiting[common] = []
while True:
    for fd, _ in e.poll():
        s = at[fd]
        if s is l:
            c = l.accept()[0]
            watch(c)
            next[c] = common or opened()
            if not common:
                watch(next[c])
                waiting[next[c]] = []
            continue
        text = s.recv(1)
        if s in waiting:
            waiting[s].pop(0).send(text)
        else:
            waiting[next[s]].append(s)
            next[s].send(text)
`

// echo answers each byte by itself when its gate opens.
const echo = `
import os, socket, sys, threading
l = socket.create_server((sys.argv[1], int(sys.argv[2])), family=socket.AF_INET6, backlog=512)
def serve(c):
    while text := c.recv(1):
        os.close(os.open(sys.argv[3], os.O_RDONLY))
        c.send(text)
while True:
    threading.Thread(target=serve, args=(l.accept()[0],), daemon=True).start()
`

// sharedAt is the time of the last answer on a shared connection, 0 without one.
func sharedAt(r *rig.Agent, t *testing.T) uint64 {
	t.Helper()
	var w objects.AgentWork
	if err := r.Objects().Works.Lookup(uint32(0), &w); err != nil {
		t.Fatal(err)
	}
	return w.SharedNs
}

// TestWorkShared: a connection that is sent on for several clients at once is found, by an answer
// to one of them; those that serve in turn are not.
func TestWorkShared(t *testing.T) {
	for _, how := range []string{"shared", "apart"} {
		r := newWorkRig(t)
		path, open := gate(t)
		serve(t, 8001, "python3", "-c", echo, rig.VipAddr.String(), "8001", path)
		serve(t, workPort, "python3", "-c", proxy, rig.VipAddr.String(), fmt.Sprint(workPort), "8001", how)
		fds := clients(t, 2, 22000, "1")
		settles(r, t, how+", 2 requests", 1, 2)
		if at := sharedAt(r, t); at != 0 {
			t.Errorf("%s: shared at %d, before an answer", how, at)
		}
		open()
		answered(t, fds)
		for range 5 { // one after the other
			sendAll(t, fds[:1], "1")
			answered(t, fds[:1])
			sendAll(t, fds[1:], "1")
			answered(t, fds[1:])
		}
		if at := sharedAt(r, t); (at != 0) != (how == "shared") {
			t.Errorf("%s: shared at %d", how, at)
		}
		settles(r, t, how+", answered", 0, 0)
	}
}

// TestWorkSharedIsOne: near to an answer on a shared connection, by a clock that may be behind,
// one more is owed, if none is.
func TestWorkSharedIsOne(t *testing.T) {
	r := rig.NewAgent(t, rig.Hits{}, rig.Offering(workPort, byWork, func(o *topo.Offering) { o.Acceptance, o.Threshold = topo.Static, 1 }))
	rig.Listen(t, workPort, 128)
	const now = time.Hour
	r.At(t, now)
	p := rig.Inward(workPort, wire.SYN)
	for _, c := range []struct {
		answer time.Duration
		out    int32
		want   string
	}{
		{0, 0, "accept_avail"},
		{now, 0, "pass_on_busy"},
		{now - 99*time.Millisecond, 0, "pass_on_busy"},
		{now + 20*time.Millisecond, 0, "pass_on_busy"},
		{now - 101*time.Millisecond, 0, "accept_avail"},
		{now - 101*time.Millisecond, 1, "pass_on_busy"},
		{now + time.Second, 0, "accept_avail"},
	} {
		w := objects.AgentWork{SharedNs: uint64(c.answer)}
		w.Counts[objects.WorkOut] = c.out
		if err := r.Objects().Works.Put(uint32(0), w); err != nil {
			t.Fatal(err)
		}
		if _, why := verdictOn(r, t, &p); why != c.want {
			t.Errorf("an answer at %v, %d owed: %s, want %s", c.answer-now, c.out, why, c.want)
		}
	}
}
