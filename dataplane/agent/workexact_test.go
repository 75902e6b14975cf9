package agent_test

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"proffer/dataplane/objects"
	"proffer/proof/rig"
)

// obedient serves each connection with a thread, as its lines say.
const obedient = `
import os, socket, struct, sys, threading
l = socket.socket(socket.AF_INET6); l.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
l.bind((sys.argv[1], int(sys.argv[2]))); l.listen(512)
def serve(c):
    text = b""
    try:
        while b := c.recv(4096):
            text += b
            if not text.endswith(b"\n"):
                continue
            if text == b"hold\n":
                os.close(os.open(sys.argv[3], os.O_RDONLY))
            if text == b"abort\n":
                c.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                break
            c.send(b"ok")
            if text == b"close\n":
                break
            text = b""
    except OSError:
        pass
    c.close()
while True:
    threading.Thread(target=serve, args=(l.accept()[0],), daemon=True).start()
`

// exactConnections is how many connections TestWorkIsExact makes: PROFFER_CONNECTIONS, or few.
func exactConnections(t *testing.T) int {
	t.Helper()
	text, ok := os.LookupEnv("PROFFER_CONNECTIONS")
	if !ok {
		return 20_000
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// crowd makes n connections from the test's network namespace, each of another kind, several at
// once. During some of them the server is not there.
func crowd(t *testing.T, n int, meanwhile func()) {
	t.Helper()
	path := fmt.Sprintf("/proc/%d/task/%d/ns/net", os.Getpid(), unix.Gettid())
	space, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer space.Close()
	var left atomic.Int64
	left.Store(int64(n))
	var group sync.WaitGroup
	for seed := range uint64(4) {
		group.Add(1)
		go func() {
			defer group.Done()
			runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
			if err := unix.Setns(int(space.Fd()), unix.CLONE_NEWNET); err != nil {
				t.Error(err)
				return
			}
			for random := rand.New(rand.NewPCG(1, seed)); left.Add(-1) >= 0; {
				visit(random)
			}
		}()
	}
	meanwhile()
	group.Wait()
}

// visit makes a connection, unless the server is not there.
func visit(random *rand.Rand) {
	fd, err := unix.Socket(unix.AF_INET6, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		panic(err)
	}
	defer unix.Close(fd)
	for unix.Connect(fd, rig.Sockaddr(netip.AddrPortFrom(rig.VipAddr, workPort))) != nil {
		time.Sleep(time.Millisecond)
	}
	kind := random.IntN(7)
	text := []string{"", "", "ask\n", "ask\n", "half", "close\n", "abort\n"}[kind]
	unix.Write(fd, []byte(text))
	switch kind {
	case 1, 2: // reset, with a request on its way, too
		unix.SetsockoptLinger(fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1})
	case 3, 5, 6:
		unix.Read(fd, make([]byte, 16))
	}
}

// wantExactly waits until each term is its number, by both of its counts, none below 0.
func wantExactly(t *testing.T, r *rig.Agent, label string, blocked int32) {
	t.Helper()
	var w objects.AgentWork
	want := [objects.WorkTerms]int32{objects.WorkBlocked: blocked}
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		if err := r.Objects().Works.Lookup(uint32(0), &w); err != nil {
			t.Fatal(err)
		}
		var terms [objects.WorkTerms]int32
		for i := range terms {
			terms[i] = w.Counts[i] + w.Counts[objects.WorkTerms+i]
		}
		if terms == want {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s: the terms are %v, want %v (%v)", label, terms, want, w.Counts)
		}
	}
}

// TestWorkIsExact: after many connections that end in every way, crashes of the server in
// mid-request and takeovers of the agent, nothing is counted that is not there, and no count is
// below 0, before a recount and after it.
func TestWorkIsExact(t *testing.T) {
	start := pinnedByWork(t)
	path, open := gate(t)
	server := func() *exec.Cmd {
		return serve(t, workPort, "python3", "-c", obedient, rig.VipAddr.String(), fmt.Sprint(workPort), path)
	}
	r, app, port := start(), server(), uint16(21000)
	hold := func(n int) (fds []int) {
		fds = clients(t, n, port, "hold\n")
		port += uint16(n)
		return fds
	}
	const crashes, takeovers = 3, 3
	n := exactConnections(t) / 4
	for _, phase := range []struct {
		label     string
		meanwhile func()
	}{
		{"connections", func() {}},
		{"crashes", func() {
			for range crashes {
				hold(5)
				rig.Eventually(t, "5 requests in progress", func() bool { return workOf(r, t).Blocked >= 5 })
				unix.Kill(-app.Process.Pid, unix.SIGKILL)
				app.Wait()
				app = server()
			}
		}},
		{"takeovers", func() {
			for range takeovers {
				r.Die()
				if r = start(); !r.Adopted() {
					t.Error("nothing was adopted")
				}
			}
		}},
		{"connections again", func() {}},
	} {
		crowd(t, n, phase.meanwhile)
		wantExactly(t, r, phase.label, 0)
	}
	held := hold(7)
	wantExactly(t, r, "7 are held", 7)
	for range 2 {
		if err := r.RecountWork(); err != nil {
			t.Fatal(err)
		}
		wantExactly(t, r, "counted again", 7)
	}
	open()
	answered(t, held)
	wantExactly(t, r, "answered", 0)
}
