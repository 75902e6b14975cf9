package hostcheck

import (
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// segment is a server, in the namespace of the test's thread, and a neighbour at the other end of its eth0.
type segment struct {
	t             *testing.T
	server, other int // namespaces
}

func newSegment(t *testing.T) *segment {
	t.Helper()
	s := &segment{t: t}
	for _, ns := range []*int{&s.other, &s.server} {
		enter(t)
		fd, err := unix.Open("/proc/thread-self/ns/net", unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { unix.Close(fd) })
		*ns = fd
	}
	v := &netlink.Veth{LinkAttrs: netlink.NewLinkAttrs(), PeerName: "port0", PeerNamespace: netlink.NsFd(s.other)}
	v.Name = "eth0"
	if err := netlink.LinkAdd(v); err != nil {
		t.Fatal(err)
	}
	s.prepare("eth0", "192.0.2.2/24", "2001:db8:2::2/64")
	s.at(s.other, func() { s.prepare("port0", "192.0.2.1/24", "2001:db8:2::1/64") })
	return s
}

func (s *segment) prepare(link string, addrs ...string) {
	s.t.Helper()
	for path, value := range map[string]string{
		"ipv6/conf/" + link + "/accept_dad": "0", "ipv4/neigh/" + link + "/retrans_time_ms": "100", "ipv6/neigh/" + link + "/retrans_time_ms": "100",
	} {
		if err := os.WriteFile(filepath.Join("/proc/sys/net", path), []byte(value), 0); err != nil {
			s.t.Fatal(err)
		}
	}
	run(s.t, "ip", "link", "set", link, "up")
	for _, a := range addrs {
		run(s.t, "ip", "addr", "add", a, "dev", link)
	}
}

// at runs f in a namespace.
func (s *segment) at(ns int, f func()) {
	s.t.Helper()
	runtime.LockOSThread()
	for _, to := range []int{ns, s.server} {
		if err := unix.Setns(to, unix.CLONE_NEWNET); err != nil {
			s.t.Fatal(err)
		}
		if to == ns {
			f()
		}
		if ns == s.server {
			return
		}
	}
}

// answered reports whether the server answers its neighbour for an address.
func (s *segment) answered(vip netip.Addr) (is bool) {
	s.t.Helper()
	s.at(s.other, func() {
		port, err := netlink.LinkByName("port0")
		if err != nil {
			s.t.Fatal(err)
		}
		n := &netlink.Neigh{LinkIndex: port.Attrs().Index, Family: unix.AF_INET, IP: vip.AsSlice()}
		if vip.Is6() {
			n.Family = unix.AF_INET6
		}
		_ = netlink.NeighDel(n)
		n.Flags = netlink.NTF_USE
		if err := netlink.NeighSet(n); err != nil {
			s.t.Fatal(err)
		}
		for end := time.Now().Add(20 * time.Second); ; time.Sleep(5 * time.Millisecond) {
			if time.Now().After(end) {
				s.t.Fatalf("the kernel neither finds %s nor gives it up", vip)
			}
			all, _ := netlink.NeighList(port.Attrs().Index, n.Family)
			i := slices.IndexFunc(all, func(n netlink.Neigh) bool { return n.IP.Equal(vip.AsSlice()) })
			switch {
			case i < 0 || all[i].State == netlink.NUD_FAILED:
				return
			case all[i].State&(netlink.NUD_REACHABLE|netlink.NUD_STALE|netlink.NUD_DELAY|netlink.NUD_PROBE) != 0:
				is = true
				return
			}
		}
	})
	return is
}

// followed runs the commands of a piece of advice.
func followed(t *testing.T, advice string) {
	t.Helper()
	for i, part := range strings.Split(advice, "`") {
		if i%2 == 1 {
			run(t, strings.Fields(part)...)
		}
	}
}

// TestAnswers: a server that answers its neighbours for a VIP is named, with the commands that end it, and only
// such a server: by the kernel's own answers. After them no advice is left.
func TestAnswers(t *testing.T) {
	vip4, vip6 := netip.MustParseAddr("203.0.113.80"), netip.MustParseAddr("2001:db8:f::1")
	for _, c := range []struct {
		label string
		set   []string // commands
		vip   netip.Addr
		takes bool     // the VIP's packets past the LB
		words []string // of the pieces of advice
	}{
		{"IPv4 on lo", []string{"ip addr add 203.0.113.80/32 dev lo"}, vip4, true, []string{"net/ipv4/conf/all/arp_ignore=1`", "net/ipv4/conf/all/arp_announce=2`"}},
		{"only an address of its own link is spoken with", []string{"ip addr add 203.0.113.80/32 dev lo", "sysctl -qw net/ipv4/conf/eth0/arp_announce=2"}, vip4, true, []string{"arp_ignore=1`"}},
		{"answers for its own link alone", []string{"ip addr add 203.0.113.80/32 dev lo", "sysctl -qw net/ipv4/conf/eth0/arp_ignore=1"}, vip4, false, []string{"arp_announce=2`"}},
		{"a value that answers", []string{"ip addr add 203.0.113.80/32 dev lo", "sysctl -qw net/ipv4/conf/all/arp_announce=2 net/ipv4/conf/all/arp_ignore=1 net/ipv4/conf/eth0/arp_ignore=3"}, vip4, true, []string{"net/ipv4/conf/eth0/arp_ignore=1`"}},
		{"answers nothing", []string{"ip addr add 203.0.113.80/32 dev lo", "sysctl -qw net/ipv4/conf/all/arp_announce=2 net/ipv4/conf/all/arp_ignore=8"}, vip4, false, nil},
		{"IPv4 on a link without ARP", []string{"ip link add mute type veth peer name end", "ip link set mute arp off up", "ip addr add 203.0.113.80/32 dev mute"}, vip4, true, []string{"arp_ignore=1`", "arp_announce=2`"}},
		{"IPv4 on the link itself", []string{"sysctl -qw net/ipv4/conf/all/arp_announce=2 net/ipv4/conf/all/arp_ignore=1", "ip addr add 203.0.113.80/32 dev eth0"}, vip4, true, []string{"eth0 answers ARP for the VIP 203.0.113.80"}},
		{"IPv6 on lo", []string{"ip addr add 2001:db8:f::1/128 dev lo"}, vip6, false, nil},
		{"IPv6 on the link itself", []string{"ip addr add 2001:db8:f::1/64 dev eth0 nodad"}, vip6, true, []string{"eth0 answers neighbour solicitations for the VIP 2001:db8:f::1"}},
		{"on both", []string{"ip addr add 2001:db8:f::1/128 dev lo", "ip addr add 2001:db8:f::1/64 dev eth0 nodad"}, vip6, true, []string{"eth0 answers neighbour solicitations"}},
	} {
		t.Run(c.label, func(t *testing.T) {
			s := newSegment(t)
			for _, command := range c.set {
				run(t, strings.Fields(command)...)
			}
			if is := s.answered(c.vip); is != c.takes {
				t.Fatalf("the kernel answers for the VIP: %v, want %v", is, c.takes)
			}
			advice, err := Answers("eth0", []netip.Addr{c.vip})
			if err != nil || len(advice) != len(c.words) {
				t.Fatalf("advice %q, %v, want some with %q", advice, err, c.words)
			}
			for i, a := range advice {
				if !strings.Contains(a, c.words[i]) {
					t.Errorf("advice %q lacks %q", a, c.words[i])
				}
				followed(t, a)
			}
			if left, err := Answers("eth0", []netip.Addr{c.vip}); err != nil || len(left) > 0 {
				t.Errorf("advice that was followed stays: %q, %v", left, err)
			}
			if s.answered(c.vip) {
				t.Error("the advice was followed, and the kernel answers for the VIP")
			}
			if left := VIPs([]netip.Addr{c.vip}); len(left) > 0 {
				t.Errorf("the advice took the VIP away: %q", left)
			}
		})
	}
}

// TestPortOfABridge: such a link is named, until the command beside it is followed.
func TestPortOfABridge(t *testing.T) {
	enter(t)
	run(t, "ip", "link", "add", "eth0", "type", "veth", "peer", "name", "port0")
	run(t, "ip", "link", "add", "br0", "type", "bridge")
	named := func(answers bool) []string {
		return slices.DeleteFunc(adviceOn(t, "eth0", answers), func(a string) bool { return strings.Contains(a, "ethtool") })
	}
	if advice := named(true); len(advice) > 0 {
		t.Errorf("beside a bridge: advice %q", advice)
	}
	run(t, "ip", "link", "set", "eth0", "master", "br0")
	for _, answers := range []bool{false, true} {
		if advice := named(answers); len(advice) != 1 || !strings.HasPrefix(advice[0], "eth0 is a port of the bridge br0") || !strings.Contains(advice[0], "name br0 in the configuration file") {
			t.Errorf("a port of a bridge: advice %q", advice)
		}
	}
	run(t, "ip", "link", "set", "dev", "eth0", "nomaster")
	if advice := named(true); len(advice) > 0 {
		t.Errorf("a port no more: advice %q", advice)
	}
}

// TestPortsOfOthers: slaves of bonds and ports of teams are named, too, and a link in a VRF is not.
func TestPortsOfOthers(t *testing.T) {
	called := netlink.LinkAttrs{Name: "up0"}
	for _, c := range []struct {
		master netlink.Link
		words  string
	}{
		{&netlink.Bond{LinkAttrs: called}, "eth0 is a slave of the bond up0"},
		{&netlink.GenericLink{LinkAttrs: called, LinkType: "team"}, "eth0 is a port of the team up0"},
		{&netlink.Vrf{LinkAttrs: called}, ""},
	} {
		advice := strings.Join(portOf("eth0", c.master), "; ")
		if c.words == "" != (advice == "") || !strings.HasPrefix(advice, c.words) || c.words != "" && !strings.Contains(advice, "name up0 in the configuration file") {
			t.Errorf("a %s: advice %q, want %q", c.master.Type(), advice, c.words)
		}
	}
}
