package agent_test

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"proffer/proof/rig"
	"proffer/topo"
	"proffer/wire"
)

// TestNamespaceIsFollowed: the sockets of the namespace that is at the path now are asked, and
// none while there is none.
func TestNamespaceIsFollowed(t *testing.T) {
	container := func(client uint16) (fd int, alive rig.Packet) {
		rig.Enter(t)
		for _, a := range []netip.Addr{rig.VipAddr, rig.ClientAddr} {
			rig.AddLocal(t, a)
		}
		alive = rig.Inward(rig.HuntPort, wire.ACK)
		alive.Src = netip.AddrPortFrom(rig.ClientAddr, client)
		rig.Established(t, alive, rig.ClientISN)
		fd, err := unix.Open("/proc/thread-self/ns/net", unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { unix.Close(fd) })
		return fd, alive
	}
	path := filepath.Join(t.TempDir(), "web")
	at := func(fd int) {
		t.Helper()
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := unix.Mount(fmt.Sprintf("/proc/self/fd/%d", fd), path, "", unix.MS_BIND, ""); err != nil {
			t.Fatal(err)
		}
	}
	remove := func() {
		t.Helper()
		if err := errors.Join(unix.Unmount(path, unix.MNT_DETACH), os.Remove(path)); err != nil {
			t.Error(err)
		}
	}
	first, old := container(1001)
	second, fresh := container(1002)
	at(first)
	r := rig.NewAgent(t, rig.Hits{}, rig.Offering(rig.HuntPort, func(o *topo.Offering) { o.Owner, o.Netns = topo.Netns, path }))
	owned := func(p rig.Packet) bool {
		t.Helper()
		s := rig.To(p, 0, wire.RecoverStickiness, wire.RecoverStickiness)
		return r.Run(t, s.Frame()).Action == rig.XDPPass
	}
	follow := func(want string) {
		t.Helper()
		if changed, err := r.Follow(); err != nil || changed != want {
			t.Errorf("follows %q, %v, want %q", changed, err, want)
		}
	}
	follow("")
	if !owned(old) || owned(fresh) {
		t.Error("not the sockets of the first container")
	}
	remove()
	follow("the network namespace at " + path + " is gone")
	if _, known := r.Conn(t, fresh.Flow()); known || owned(fresh) {
		t.Error("sockets of no container")
	}
	at(second)
	follow("the network namespace at " + path + " is another one")
	follow("")
	old.Src = netip.AddrPortFrom(rig.ClientAddr, 1003)
	if !owned(fresh) || owned(old) {
		t.Error("not the sockets of the second container")
	}
	remove()
	follow("the network namespace at " + path + " is gone")
	follow("")
	if err := unix.Mkfifo(path, 0o666); err != nil { // of an application: nothing waits for its writer
		t.Fatal(err)
	}
	follow("")
	if found, err := r.Problems(); err != nil || !slices.ContainsFunc(found, func(p string) bool { return strings.Contains(p, "open "+path+": not a namespace") }) {
		t.Errorf("problems %q, %v", found, err)
	}
	again := rig.NewAgent(t, rig.Hits{}, rig.Offering(rig.HuntPort, func(o *topo.Offering) { o.Owner, o.Netns = topo.Netns, path })) // which starts
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	at(first)
	if changed, err := again.Follow(); err != nil || changed != "the network namespace at "+path+" is another one" {
		t.Errorf("after such a start: follows %q, %v", changed, err)
	}
	remove()
	if err := unix.Mkfifo(path, 0o666); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Offer([]topo.Offering{rig.Offering(82, func(o *topo.Offering) { o.Owner, o.Netns = topo.Netns, path })}); err == nil {
		t.Error("a FIFO is a namespace")
	}
}
