package guest_test

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"proffer/lab/testbed"
	"proffer/proof/guest"
)

// place is a node of a bed that ends with the test.
func place(t *testing.T) *testbed.Node {
	t.Helper()
	bed, err := testbed.Up(t.Context(), testbed.Config{Servers: 1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := bed.Close(); err != nil {
			t.Errorf("close the testbed: %v", err)
		}
	})
	return bed.Servers[0]
}

// boot starts a guest that ends with the test.
func boot(t *testing.T, c guest.Config) *guest.Guest {
	t.Helper()
	g, err := guest.Boot(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := g.Close(); err != nil {
			t.Errorf("close the guest: %v", err)
		}
	})
	return g
}

func run(t *testing.T, g *guest.Guest, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	out, err := g.Run(ctx, args...)
	if err != nil {
		t.Fatalf("%v\n%s", err, g.Console())
	}
	return out
}

// links are the names of a place's links.
func links(t *testing.T, n *testbed.Node) (names []string) {
	t.Helper()
	err := n.Do(func() error {
		all, err := netlink.LinkList()
		for _, l := range all {
			names = append(names, l.Attrs().Name)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return names
}

// wantSilent: the place has no address that would answer for the guest.
func wantSilent(t *testing.T, n *testbed.Node) {
	t.Helper()
	err := n.Do(func() error {
		addrs, err := netlink.AddrList(nil, netlink.FAMILY_ALL)
		if len(addrs) > 0 {
			t.Errorf("the place has kept %v", addrs)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// wantNothingLeft: the place has the links it had, and no process is in it.
func wantNothingLeft(t *testing.T, n *testbed.Node) {
	t.Helper()
	if got := strings.Join(links(t, n), " "); got != "lo eth0" {
		t.Errorf("the place has links %s, want lo and eth0", got)
	}
	var place, other unix.Stat_t
	if err := unix.Stat(filepath.Join("/run/netns", n.Namespace), &place); err != nil {
		t.Fatal(err)
	}
	inside, err := filepath.Glob("/proc/[0-9]*/ns/net")
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range inside {
		if unix.Stat(p, &other) == nil && other.Ino == place.Ino { // else gone meanwhile
			t.Errorf("a process is left: %s", p)
		}
	}
}

// TestGuest: a guest runs another kernel than this one, obeys, is on the
// place's link and leaves nothing; then the place is free for the next.
func TestGuest(t *testing.T) {
	n := place(t)
	const content = "some\x00bytes\n"
	g := boot(t, guest.Config{Name: "one", Place: n, Files: map[string][]byte{"/etc/some/file": []byte(content)}})

	var here unix.Utsname
	if err := unix.Uname(&here); err != nil {
		t.Fatal(err)
	}
	kernel := strings.TrimSpace(run(t, g, "uname", "-r"))
	if !strings.HasSuffix(kernel, "-cloud-amd64") || kernel == unix.ByteSliceToString(here.Release[:]) {
		t.Errorf("the guest runs kernel %q", kernel)
	}
	if got := run(t, g, "cat", "/etc/some/file"); got != content {
		t.Errorf("the guest has %q, want %q", got, content)
	}
	out, err := g.Run(t.Context(), "sh", "-c", "echo said; echo complained >&2; exit 7")
	var exit *guest.ExitError
	if !errors.As(err, &exit) || *exit != (guest.ExitError{Code: 7, Stderr: "complained\n"}) || out != "said\n" {
		t.Errorf("exit code 7 gives %q, %v", out, err)
	}
	if _, err := g.Run(t.Context(), "no-such-program"); err == nil || errors.As(err, &exit) {
		t.Errorf("a program that is missing gives %v", err)
	}
	run(t, g, "sh", "-c", "sleep 1000 >/dev/null 2>&1 &")                            // does not hold the line
	run(t, g, "sh", "-c", "killall sleep; while pidof sleep; do usleep 10000; done") // nor stays as a zombie

	wantSilent(t, n)
	router := n.Addr.Prev().String()
	run(t, g, "sh", "-ec", "echo 0 >/proc/sys/net/ipv6/conf/eth0/accept_dad; ip link set eth0 up; ip addr add "+n.Addr.String()+"/64 dev eth0")
	run(t, g, "ping", "-c", "1", "-W", "10", router)
	if err := g.Close(); err != nil {
		t.Error(err)
	}
	wantNothingLeft(t, n)

	next := boot(t, guest.Config{Name: "two", Place: n, Kernel: guest.DefaultKernel})
	run(t, next, "true")
}

// TestGuestGivenUp: a caller that does not wait for a program gives up the guest, which
// can still be closed.
func TestGuestGivenUp(t *testing.T) {
	n := place(t)
	g := boot(t, guest.Config{Name: "given-up", Place: n})
	ctx, cancel := context.WithCancel(t.Context())
	go cancel()
	if _, err := g.Run(ctx, "sleep", "1000"); !errors.Is(err, context.Canceled) {
		t.Errorf("a program given up gives %v", err)
	}
	if _, err := g.Run(t.Context(), "true"); err == nil {
		t.Error("the guest still obeys, but its answers may be those to earlier questions")
	}
	for range 2 {
		if err := g.Close(); err != nil {
			t.Error(err)
		}
	}
	wantNothingLeft(t, n)
}

// TestNoGuest: a guest that cannot boot returns the reason and leaves nothing.
func TestNoGuest(t *testing.T) {
	n := place(t)
	for _, c := range []struct {
		config guest.Config
		says   string
	}{
		{guest.Config{Kernel: "linux-image-no-such"}, "apt-get update"},
		{guest.Config{Kernel: "busybox-static"}, "has 0 kernels"},
		{guest.Config{Files: map[string][]byte{"/init": []byte("#!/no/such/program\n")}}, "Kernel panic"},
	} {
		c.config.Place, c.config.Name = n, "hopeless"
		if g, err := guest.Boot(t.Context(), c.config); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("guest %v, error %v; want one that says %q", g, err, c.says)
		}
		wantNothingLeft(t, n)
	}
}
