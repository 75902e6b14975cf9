package agent_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"proffer/dataplane/objects"
	"proffer/proof/rig"
	"proffer/topo"
	"proffer/wire"
)

func byWork(o *topo.Offering) { o.Measure, o.Cores = topo.Work, 0 }

// TestWorkQueue: a connection in the accept queue is one request, whether it has sent data or
// not, and so is one that is accepted with data; the agent decides by that.
func TestWorkQueue(t *testing.T) {
	r := newWorkRig(t)
	l := rig.Listen(t, workPort, 128)
	p := rig.Inward(workPort, wire.SYN)
	offered := func(label string, work uint32, want string) {
		t.Helper()
		rig.Eventually(t, label, func() bool { return sum(workOf(r, t)) == work })
		if _, why := verdictOn(r, t, &p); why != want {
			t.Errorf("%s: %s, want %s", label, why, want)
		}
	}
	fds := clients(t, 3, 20000, "")
	rig.Queued(t, 3, l)
	offered("three queued", 0, "accept_avail")
	for i, fd := range fds[:2] {
		send(t, fd, "GET")
		offered("queued with data", uint32(i+1), "accept_avail")
	}
	fds = append(fds, clients(t, 1, 20003, "GET")...)
	offered("a fourth, with data", 3, "pass_on_busy")
	accepted, _, err := unix.Accept(l)
	if err != nil {
		t.Fatal(err)
	}
	offered("one accepted", 3, "accept_avail") // until it is read, three at least
	defer unix.Close(accepted)
	for _, fd := range fds {
		rig.Reset(t, fd)
	}
	offered("all reset", 0, "accept_avail")
}

func send(t *testing.T, fd int, text string) {
	t.Helper()
	if _, err := unix.Write(fd, []byte(text)); err != nil {
		t.Fatal(err)
	}
}

// TestWorkRecount: counts that are wrong are right after a recount and the next, and till then
// no load is below 0.
func TestWorkRecount(t *testing.T) {
	r := newWorkRig(t)
	rig.Listen(t, workPort, 128)
	clients(t, 2, 20000, "GET")
	rig.Eventually(t, "two unread", func() bool { return workOf(r, t).Early == 2 })
	p := rig.Inward(workPort, wire.SYN)
	for _, wrong := range []int32{-7, 7, -1 << 31} {
		var w objects.AgentWork
		for i := range w.Counts {
			w.Counts[i] = wrong
		}
		if err := r.Objects().Works.Put(uint32(0), w); err != nil {
			t.Fatal(err)
		}
		if wrong < 0 {
			if _, why := verdictOn(r, t, &p); why != "accept_avail" {
				t.Errorf("counts of %d: %s", wrong, why)
			}
		}
		for range 3 {
			if err := r.RecountWork(); err != nil {
				t.Fatal(err)
			}
		}
		if w := workOf(r, t); w.Early != 2 || sum(w) != 2 {
			t.Errorf("counts of %d, counted again: %+v", wrong, *w)
		}
	}
}

// TestWorkRestart: requests in progress outlast the agent, whether it is killed or not.
func TestWorkRestart(t *testing.T) {
	start := pinnedByWork(t)
	r := start()
	_, open := serveSlowly(t, workPort)
	fds := clients(t, 5, 22000, request)
	settles(r, t, "5 slow requests", 5, 5)
	r.Die()
	next := start()
	if !next.Adopted() {
		t.Fatal("nothing was adopted")
	}
	fds = append(fds, clients(t, 5, 23000, request)...)
	settles(next, t, "5 more", 10, 10)
	open()
	answered(t, fds)
	settles(next, t, "answered", 0, 0)
}

// TestWorkStartsLate: connections and requests that came before the agent are counted as far
// as the kernel has their data, and the others from their next request on.
func TestWorkStartsLate(t *testing.T) {
	rig.NewAgent(t, rig.Hits{}, rig.Offering(workPort)) // for its namespace
	l := rig.Listen(t, workPort, 128)
	clients(t, 3, 20000, "GET")
	rig.Queued(t, 3, l)
	r := rig.LoadAgent(t, rig.Hits{}, rig.AgentConfig(64, rig.Offering(workPort, byWork)), rig.InVirtualTime)
	if err := r.RecountWork(); err != nil {
		t.Fatal(err)
	}
	if w := workOf(r, t); w.Early != 3 {
		t.Errorf("%+v, 3 were sent before", *w)
	}
}

// twoPorts serves two ports in a process, with a thread a connection; the requests of the first
// wait for a gate.
const twoPorts = `
import os, socket, sys, threading
def listen(port, gate):
    l = socket.socket(socket.AF_INET6); l.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    l.bind((sys.argv[1], port)); l.listen(512)
    def serve(c):
        while c.recv(4096):
            if gate:
                os.close(os.open(gate, os.O_RDONLY))
            c.send(b"ok")
    while True:
        threading.Thread(target=serve, args=(l.accept()[0],), daemon=True).start()
threading.Thread(target=listen, args=(8002, None)).start()
listen(8000, sys.argv[2])
`

// TestWorkOfTwoServices: a process with two services, and two processes that share a port.
func TestWorkOfTwoServices(t *testing.T) {
	r := rig.NewAgent(t, rig.Hits{}, rig.Offering(workPort, byWork), rig.Offering(8002, byWork))
	path, open := gate(t)
	for range 2 {
		serve(t, workPort, "python3", "-c", twoPorts, rig.VipAddr.String(), path)
	}
	listens(t, 8002)
	var quick []int
	for i := range 20 {
		quick = append(quick, rig.Dial(t, uint16(24000+i), 8002))
		send(t, quick[i], request)
	}
	answered(t, quick)
	slow := clients(t, 20, 22000, request)
	settles(r, t, "20 slow requests", 20, 20)
	if l, err := r.Load(1); err != nil || sum(l.Work) != 0 {
		t.Errorf("the other service: %+v, %v", l.Work, err)
	}
	open()
	answered(t, slow)
	settles(r, t, "answered", 0, 0)
}

// TestWorkInContainer: the server is in other namespaces than the agent, of networks, processes
// and control groups.
func TestWorkInContainer(t *testing.T) {
	rig.NewAgent(t, rig.Hits{}, rig.Offering(workPort)) // for its namespace, the container's
	container, err := os.Open(fmt.Sprintf("/proc/%d/task/%d/ns/net", os.Getpid(), unix.Gettid()))
	if err != nil {
		t.Fatal(err)
	}
	defer container.Close()
	path, open := gate(t)
	serve(t, workPort, "unshare", "--pid", "--cgroup", "--ipc", "--fork", "--kill-child", "python3", "-c", slowThreads, rig.VipAddr.String(), fmt.Sprint(workPort), path)
	queued := clients(t, 5, 22000, "")
	r := rig.NewAgent(t, rig.Hits{}, rig.Offering(workPort, byWork, func(o *topo.Offering) {
		o.Owner, o.Netns = topo.Netns, fmt.Sprintf("/proc/self/fd/%d", container.Fd())
	}))
	if err := r.RecountWork(); err != nil {
		t.Fatal(err)
	}
	for _, fd := range queued {
		send(t, fd, request)
	}
	settles(r, t, "5 slow requests", 5, 5)
	if err := r.RecountWork(); err != nil {
		t.Fatal(err)
	}
	settles(r, t, "counted again", 5, 5)
	open()
	answered(t, queued)
	settles(r, t, "answered", 0, 0)
}

// TestWorkInstead: where work cannot be counted, the load is busy, and nothing is attached.
func TestWorkInstead(t *testing.T) {
	for reason, change := range map[string]func(*topo.Offering){
		"udp has no connections":       func(o *topo.Offering) { o.VIP.Protocol = topo.UDP },
		"the sockets are out of sight": rig.ByTable,
	} {
		r := rig.NewAgent(t, rig.Hits{}, rig.Offering(workPort, byWork, change))
		l, err := r.Load(0)
		if err != nil || l.Measure != topo.Busy || l.Instead != reason || l.Work != nil || r.NoWork() != "" || r.CountsWork() {
			t.Errorf("%+v, %v, want busy: %s", l, err, reason)
		}
	}
}

// TestWorkOfReload: a reload that needs no work any more detaches the programs, and one that
// needs it again attaches them; they outlive the agent.
func TestWorkOfReload(t *testing.T) {
	rig.NewAgent(t, rig.Hits{}, rig.Offering(workPort)) // for its namespace
	cfg := rig.AgentConfig(64, rig.Offering(workPort, byWork))
	cfg.Pin = rig.BPFFS(t) + "/s1"
	r := rig.LoadAgent(t, rig.Hits{}, cfg, rig.InVirtualTime)
	if err := r.Attach(); err != nil {
		t.Fatal(err)
	}
	pinned := func() int {
		t.Helper()
		links, err := filepath.Glob(cfg.Pin + "/*/work*")
		if err != nil {
			t.Fatal(err)
		}
		return len(links)
	}
	if n := pinned(); n < 10 {
		t.Errorf("%d maps and links are pinned", n)
	}
	if _, err := r.Offer([]topo.Offering{rig.Offering(workPort)}); err != nil || r.CountsWork() || pinned() > 0 {
		t.Errorf("%v; counts %v, %d pins are left", err, r.CountsWork(), pinned())
	}
	if l, err := r.Load(0); err != nil || l.Measure != topo.Busy || l.Instead != "" {
		t.Errorf("%+v, %v", l, err)
	}
	serveSlowly(t, workPort)
	if _, err := r.Offer(cfg.Services); err != nil || !r.CountsWork() || pinned() < 10 {
		t.Errorf("%v; counts %v, %d pins", err, r.CountsWork(), pinned())
	}
	clients(t, 5, 22000, request)
	settles(r, t, "5 slow requests", 5, 5)
	r.Die()
	if r = rig.LoadAgent(t, rig.Hits{}, cfg, rig.InVirtualTime); !r.CountsWork() {
		t.Error("not counted after a start")
	}
}

// refuse has the kernel refuse this thread a command of bpf(2) for good, as a container's policy
// may.
func refuse(t *testing.T, command uint32) {
	t.Helper()
	filter := []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: 0}, // the number of the call
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, Jf: 3, K: unix.SYS_BPF},
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: 16}, // its first argument
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, Jf: 1, K: command},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM)},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW},
	}
	program := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	if _, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, 0, uintptr(unsafe.Pointer(&program))); errno != 0 {
		t.Fatal(errno)
	}
}

// TestWorkRefused: where the kernel takes the agent's programs, but lets none be attached to a
// tracepoint, the load is busy, the agent decides by it, and the reason is named.
func TestWorkRefused(t *testing.T) {
	rig.NewAgent(t, rig.Hits{}, rig.Offering(workPort)) // for its namespace
	refuse(t, unix.BPF_RAW_TRACEPOINT_OPEN)
	r := rig.LoadAgent(t, rig.Hits{}, rig.AgentConfig(64, rig.Offering(workPort, byWork)), rig.InVirtualTime)
	rig.Listen(t, workPort, 128)
	r.SetLoad(t, func(l *objects.AgentLoad) { l.Asking[0] = 4 })
	p := rig.Inward(workPort, wire.SYN)
	if _, why := verdictOn(r, t, &p); why != "pass_on_busy" {
		t.Error(why)
	}
	l, err := r.Load(0)
	if err != nil || l.Measure != topo.Busy || !strings.Contains(l.Instead, "operation not permitted") || !strings.Contains(l.Instead, "attach ") || r.NoWork() != l.Instead || r.CountsWork() {
		t.Errorf("%+v, %v", l, err)
	}
	t.Log(l.Instead)
}

// TestWorkNotEntered: without the capability to enter the namespace of its sockets, a service's
// work counts on, and the missing capability is named until the agent has it.
func TestWorkNotEntered(t *testing.T) {
	rig.NewAgent(t, rig.Hits{}, rig.Offering(workPort)) // for its namespace, the container's
	container, err := os.Open(fmt.Sprintf("/proc/%d/task/%d/ns/net", os.Getpid(), unix.Gettid()))
	if err != nil {
		t.Fatal(err)
	}
	defer container.Close()
	_, open := serveSlowly(t, workPort)
	queued := clients(t, 5, 22000, "")
	r := rig.NewAgent(t, rig.Hits{}, rig.Offering(workPort, byWork, func(o *topo.Offering) {
		o.Owner, o.Netns = topo.Netns, fmt.Sprintf("/proc/self/fd/%d", container.Fd())
	}))
	recounted := func(label, want string) {
		t.Helper()
		if err := r.RecountWork(); err != nil {
			t.Fatal(err)
		}
		if l, err := r.Load(0); err != nil || (l.NoRecount == "") != (want == "") || !strings.Contains(l.NoRecount, want) {
			t.Errorf("%s: %+v, %v", label, l, err)
		}
	}
	recounted("with all capabilities", "")
	mayAdminister(t, false)
	recounted("without CAP_SYS_ADMIN", "operation not permitted: "+topo.Needs("CAP_SYS_ADMIN"))
	for _, fd := range queued {
		send(t, fd, request)
	}
	settles(r, t, "5 slow requests", 5, 5)
	mayAdminister(t, true)
	recounted("with it again", "")
	settles(r, t, "counted again", 5, 5)
	open()
	answered(t, queued)
	settles(r, t, "answered", 0, 0)
}

// mayAdminister gives this thread CAP_SYS_ADMIN, or takes it.
func mayAdminister(t *testing.T, may bool) {
	t.Helper()
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var sets [2]unix.CapUserData
	if err := unix.Capget(&header, &sets[0]); err != nil {
		t.Fatal(err)
	}
	sets[0].Effective &^= 1 << unix.CAP_SYS_ADMIN
	if may {
		sets[0].Effective |= 1 << unix.CAP_SYS_ADMIN
	}
	if err := unix.Capset(&header, &sets[0]); err != nil {
		t.Fatal(err)
	}
}

// pinnedByWork returns the start of an agent that is pinned, in a namespace of its own.
func pinnedByWork(t *testing.T) func() *rig.Agent {
	t.Helper()
	rig.NewAgent(t, rig.Hits{}, rig.Offering(workPort)) // for its namespace
	cfg := rig.AgentConfig(64, rig.Offering(workPort, byWork))
	cfg.Pin = rig.BPFFS(t) + "/s1"
	return func() *rig.Agent {
		t.Helper()
		r := rig.LoadAgent(t, rig.Hits{}, cfg, rig.InVirtualTime)
		if err := r.Attach(); err != nil {
			t.Fatal(err)
		}
		return r
	}
}
