package listeners

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"

	"proffer/topo"
)

// TestListenersInNamespace: sockets of another network namespace are found there, and there alone, of
// each protocol and family; a path that is no namespace is an error.
func TestListenersInNamespace(t *testing.T) {
	const port = 4711
	var held []interface{ Close() error }
	path, done := make(chan string), make(chan error)
	go func() {
		runtime.LockOSThread() // the thread ends with its goroutine
		defer close(path)
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			done <- err
			return
		}
		at := fmt.Sprintf("[::]:%d", port)
		l, err := net.Listen("tcp", at)
		if err != nil {
			done <- err
			return
		}
		c, err := net.ListenPacket("udp", at)
		held = append(held, l, c)
		path <- fmt.Sprintf("/proc/%d/task/%d/ns/net", os.Getpid(), unix.Gettid())
		done <- err
	}()
	var vips []topo.VIP
	for _, addr := range []string{"192.0.2.1", "2001:db8::1"} {
		for _, protocol := range []topo.Protocol{topo.TCP, topo.UDP} {
			vips = append(vips, topo.VIP{Addr: netip.MustParseAddr(addr), Port: port, Protocol: protocol})
		}
	}
	if space, ok := <-path; ok {
		there, err := Of("/proc", space, vips)
		if err != nil {
			t.Error(err)
		}
		here, err := Of("/proc", "", vips)
		if err != nil || len(here) > 0 {
			t.Errorf("in this namespace %v, %v", here, err)
		}
		for _, vip := range vips {
			if got := there[vip]; len(got) != 1 || got[0].PID != os.Getpid() {
				t.Errorf("at %v: %v, want this process", vip, got)
			}
		}
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	for _, h := range held {
		h.Close()
	}
	if found, err := Of("/proc", os.Args[0], vips); err == nil {
		t.Errorf("in a file that is no namespace: %v", found)
	}
}
