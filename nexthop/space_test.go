package nexthop

import (
	"fmt"
	"os"
	"runtime"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// space is a fresh network namespace: a thread that lives in it, and dies with
// it at the end of the test.
type space struct {
	t    *testing.T
	jobs chan func()
	fd   int // names the namespace
}

func newSpace(t *testing.T) *space {
	t.Helper()
	s := &space{t: t, jobs: make(chan func())}
	ready := make(chan error)
	go func() {
		runtime.LockOSThread() // and never unlock: the thread is of no use elsewhere
		err := unix.Unshare(unix.CLONE_NEWNET)
		if err == nil {
			s.fd, err = unix.Open("/proc/thread-self/ns/net", unix.O_RDONLY|unix.O_CLOEXEC, 0)
		}
		ready <- err
		for job := range s.jobs {
			job()
		}
	}()
	if err := <-ready; err != nil {
		t.Fatalf("make a network namespace (needs root): %v", err)
	}
	t.Cleanup(func() {
		unix.Close(s.fd)
		close(s.jobs)
	})
	return s
}

// do runs f inside and fails the test if it fails.
func (s *space) do(f func() error) {
	s.t.Helper()
	ended := make(chan error)
	s.jobs <- func() { ended <- f() }
	if err := <-ended; err != nil {
		s.t.Fatal(err)
	}
}

// pair joins two fresh namespaces by a link, up on both sides.
func pair(t *testing.T, name, peer string) (a, b *space) {
	t.Helper()
	a, b = newSpace(t), newSpace(t)
	a.join(b, name, peer)
	return a, b
}

func (s *space) join(other *space, name, peer string) {
	s.t.Helper()
	s.do(func() error {
		v := &netlink.Veth{LinkAttrs: netlink.NewLinkAttrs(), PeerName: peer, PeerNamespace: netlink.NsFd(other.fd)}
		v.Name = name
		return netlink.LinkAdd(v)
	})
	s.setUp(name)
	other.setUp(peer)
}

// setUp takes a link up without waiting for duplicate addresses; it tells its
// neighbours when its own address changes (ndisc_notify, arp_notify).
func (s *space) setUp(name string) {
	s.t.Helper()
	s.do(func() error {
		for key, value := range map[string]string{
			"ipv6/conf/%s/accept_dad": "0", "ipv6/conf/%s/ndisc_notify": "1", "ipv6/conf/%s/accept_ra": "0", "ipv4/conf/%s/arp_notify": "1",
		} {
			if err := os.WriteFile("/proc/sys/net/"+fmt.Sprintf(key, name), []byte(value), 0); err != nil {
				return err
			}
		}
		link, err := netlink.LinkByName(name)
		if err != nil {
			return err
		}
		return netlink.LinkSetUp(link)
	})
}

func (s *space) link(name string) (link netlink.Link) {
	s.t.Helper()
	s.do(func() (err error) {
		link, err = netlink.LinkByName(name)
		return err
	})
	return link
}

func (s *space) address(name string, addrs ...string) {
	s.t.Helper()
	for _, text := range addrs {
		s.do(func() error {
			addr, err := netlink.ParseAddr(text)
			if err != nil {
				return err
			}
			addr.Flags = unix.IFA_F_NODAD
			link, err := netlink.LinkByName(name)
			if err != nil {
				return err
			}
			return netlink.AddrAdd(link, addr)
		})
	}
}
