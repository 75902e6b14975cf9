package sizes

import (
	"errors"
	"fmt"
	"net/netip"
	"runtime"
	"strings"
	"testing"
	"unsafe"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"proffer/e2e/kit"
	"proffer/lab/testbed"
	"proffer/topo"
)

// ethtool changes a setting of a link in this thread's namespace.
func ethtool[V any](link string, value *V) error {
	socket, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(socket)
	request := struct { // ifreq of linux/if.h with ifr_data in use
		name  [unix.IFNAMSIZ]byte
		value *V
		_     [16]byte
	}{value: value}
	copy(request.name[:], link)
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(socket), unix.SIOCETHTOOL, uintptr(unsafe.Pointer(&request)))
	runtime.KeepAlive(value)
	if errno != 0 {
		return errno
	}
	return nil
}

// joining makes the LB's link one whose driver refuses XDP, as its far end has more queues to send
// with than this end has to receive; and where joined segments come in, as on a NIC without XDP
// or from a virtual machine's host: the router joins the client's.
func joining(t *testing.T, bed *testbed.Bed, lb *testbed.Node) {
	t.Helper()
	queues := struct {
		command                 uint32
		_                       [4]uint32 // the most
		receive, send, _, _both uint32
	}{command: unix.ETHTOOL_SCHANNELS, receive: 1, send: 2}
	err := bed.Router.Do(func() error {
		if err := ethtool(lb.Link, &queues); err != nil {
			return err
		}
		for _, set := range []struct {
			link    string
			command uint32
		}{
			{bed.Client.Link, unix.ETHTOOL_SGRO},
			{lb.Link, unix.ETHTOOL_STXCSUM}, {lb.Link, unix.ETHTOOL_SSG}, {lb.Link, unix.ETHTOOL_STSO},
		} {
			on := struct{ command, on uint32 }{set.command, 1}
			if err := ethtool(set.link, &on); err != nil {
				return err
			}
		}
		l, err := netlink.LinkByName(bed.Client.Link)
		if err == nil {
			err = errors.Join(netlink.LinkSetGROMaxSize(l, 1<<16), netlink.LinkSetGROIPv4MaxSize(l, 1<<16))
		}
		return err
	})
	if err != nil {
		t.Fatalf("links of %s and of the client: %v", lb.Link, err)
	}
}

// TestGenericUpload: docs/failures.md, super-packets, why generic: where XDP runs in the stack
// the segments that GRO joined arrive, none is answered with packet too big, and the daemon has
// the kernel's reason.
func TestGenericUpload(t *testing.T) {
	const streams, size = 2, 20_000_000
	first := 20000
	for _, c := range []struct {
		policy, vip string
		wire        topo.Wire
	}{
		{"hunt:static:1", testbed.VIP, topo.Encap},
		{"hunt:static:1", testbed.VIP4, topo.Encap},
		{"hunt:static:1", testbed.VIP, topo.Insert},
		{"single", testbed.VIP, topo.Encap},
		{"single", testbed.VIP4, topo.Encap},
	} {
		t.Run(fmt.Sprintf("%s %s %s", c.policy, c.vip, c.wire), func(t *testing.T) {
			vip := netip.MustParseAddr(c.vip)
			bed := kit.Up(t, testbed.Config{Servers: 3})
			joining(t, bed, bed.LBs[0])
			kit.Bulks(t, bed, bed.Servers...)
			s := kit.Settings(t, c.policy)
			kit.FamilyOf(&s, vip)
			lb, agent := s.LB, s.Agent
			s.LB = func(cfg *topo.LB) { lb(cfg); cfg.Services[0].Wire = c.wire }
			s.Agent = func(n *testbed.Node, a *topo.Agent) { agent(n, a); a.Services[0].Wire = c.wire }
			farm := kit.Start(t, bed, s)
			const why = "XDP expects number of rx queues not less than peer tx queues"
			now := kit.Status(t, farm, bed.LBs[0])
			if now.XDP != "generic" || !strings.Contains(strings.Join(now.Advice, "; "), why) {
				t.Errorf("XDP %s: %q", now.XDP, now.Advice)
			}
			if log := farm.Daemon(bed.LBs[0]).Log(); !strings.Contains(log, why) {
				t.Errorf("the log lacks the reason:\n%s", log)
			}
			first += streams
			up := kit.Begin(t, bed, vip, true, first, streams)
			kit.Move(t, "upwards", up, size)
			kit.Finish(t, "upwards", up)
			for _, name := range []string{"sent_in_segments", "pass_long"} {
				if n := kit.Counter(t, farm, name, bed.LBs[0]); n == 0 {
					t.Errorf("%s is 0: no segments were joined", name)
				}
			}
			if n := kit.Counter(t, farm, "too_big", bed.LBs[0]); n > 100 { // single: the client learns the size first
				t.Errorf("%d packets were answered with packet too big", n)
			}
		})
	}
}
