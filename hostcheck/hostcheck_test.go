package hostcheck

import (
	"net/netip"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// enter moves the test's thread into a fresh network namespace.
func enter(t *testing.T) {
	t.Helper()
	runtime.LockOSThread() // and never unlock: the thread is of no use elsewhere
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		t.Fatalf("make a network namespace (needs root): %v", err)
	}
	run(t, "ip", "link", "set", "lo", "up")
}

// run runs a command in the namespace of this thread.
func run(t *testing.T, args ...string) {
	t.Helper()
	if out, err := exec.Command(args[0], args[1:]...).CombinedOutput(); err != nil {
		t.Fatalf("%v: %v\n%s", args, err, out)
	}
}

// mend runs the command of a piece of advice.
func mend(t *testing.T, advice string) {
	t.Helper()
	_, command, _ := strings.Cut(advice, "`")
	run(t, strings.Fields(strings.TrimSuffix(command, "`"))...)
}

// TestVIPs: a VIP of either family that is no address of the host is named, and the command
// beside it mends that.
func TestVIPs(t *testing.T) {
	enter(t)
	run(t, "ip", "link", "add", "eth0", "type", "veth", "peer", "name", "port0")
	for _, link := range []string{"eth0", "port0"} {
		run(t, "ip", "link", "set", link, "up")
	}
	run(t, "ip", "-6", "route", "add", "default", "dev", "eth0") // a route to the VIPs, but none of this host's
	run(t, "ip", "route", "add", "default", "dev", "eth0")
	vips := []netip.Addr{netip.MustParseAddr("2001:db8:f::1"), netip.MustParseAddr("203.0.113.80")}
	want := []string{
		"VIP 2001:db8:f::1 is no address of this host: `ip addr add 2001:db8:f::1/128 dev lo`",
		"VIP 203.0.113.80 is no address of this host: `ip addr add 203.0.113.80/32 dev lo`",
	}
	if got := VIPs(vips); !slices.Equal(got, want) {
		t.Errorf("advice %q, want %q", got, want)
	}
	for i := range want {
		mend(t, want[i])
		for late := time.Now().Add(10 * time.Second); !slices.Equal(VIPs(vips), want[i+1:]); time.Sleep(time.Millisecond) { // the kernel adds the route later
			if time.Now().After(late) {
				t.Fatalf("advice %q, want %q", VIPs(vips), want[i+1:])
			}
		}
	}
}

func adviceOn(t *testing.T, link string, answers bool) []string {
	t.Helper()
	advice, err := Link(link, answers)
	if err != nil {
		t.Fatal(err)
	}
	return advice
}

// TestVeth: partial checksums and an end that does not wake up are named with the commands
// that mend them; another kind of link needs no advice.
func TestVeth(t *testing.T) {
	enter(t)
	run(t, "ip", "link", "add", "eth0", "type", "veth", "peer", "name", "port0")
	run(t, "ip", "link", "set", "eth0", "up")
	run(t, "ip", "link", "set", "port0", "up")
	want := []string{
		"eth0 leaves checksums to a device that has none, so answers inside signals carry no checksum: `ethtool -K eth0 tx off`",
		"port0, the other end of eth0, takes no frames of our programs: `ethtool -K port0 gro on`",
		"port0 leaves checksums to a device that has none, so packets that are sent there carry no checksum: `ethtool -K port0 tx off`",
	}
	if got := adviceOn(t, "eth0", true); !slices.Equal(got, want) {
		t.Errorf("advice %q, want %q", got, want)
	}
	if got := adviceOn(t, "eth0", false); !slices.Equal(got, want[1:]) {
		t.Errorf("advice to an LB %q, want %q", got, want[1:])
	}
	set(t, "eth0", unix.ETHTOOL_STXCSUM, 0)
	set(t, "port0", unix.ETHTOOL_SGRO, 1)
	set(t, "port0", unix.ETHTOOL_STXCSUM, 0)
	if got := adviceOn(t, "eth0", true); len(got) > 0 {
		t.Errorf("advice %q about a link that is as it should be", got)
	}
	if got := adviceOn(t, "lo", true); len(got) > 0 {
		t.Errorf("advice %q about a link that is no veth", got)
	}
	if _, err := Link("nosuch0", true); err == nil {
		t.Error("a link that is not there was checked")
	}
}

// TestPeerOutOfSight: the other end is in another namespace.
func TestPeerOutOfSight(t *testing.T) {
	enter(t)
	here, err := unix.Open("/proc/thread-self/ns/net", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(here)
	enter(t)
	v := &netlink.Veth{LinkAttrs: netlink.NewLinkAttrs(), PeerName: "port0", PeerNamespace: netlink.NsFd(here)}
	v.Name = "eth0"
	if err := netlink.LinkAdd(v); err != nil {
		t.Fatal(err)
	}
	set(t, "eth0", unix.ETHTOOL_STXCSUM, 0)
	want := []string{"eth0 is a veth and its other end is out of sight, so it is not known whether `ethtool -K PEER gro on tx off` was done there, which our frames need"}
	if got := adviceOn(t, "eth0", true); !slices.Equal(got, want) {
		t.Errorf("advice %q, want %q", got, want)
	}
}
