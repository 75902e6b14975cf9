package hostcheck

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"proffer/topo"
)

// follow runs the commands of a piece of advice; ethtool's are done as ethtool does them.
func follow(t *testing.T, advice string) {
	t.Helper()
	for i, command := range strings.Split(advice, "`") {
		if i%2 == 0 {
			continue
		}
		words := strings.Fields(command)
		at := slices.Index(words, "ethtool")
		if at < 0 {
			run(t, words...)
			continue
		}
		do := func() {
			for k := at + 3; k < len(words); k += 2 {
				feature := map[string]uint32{"tx": unix.ETHTOOL_STXCSUM, "gro": unix.ETHTOOL_SGRO}[words[k]]
				set(t, words[at+2], feature, map[string]uint32{"on": 1, "off": 0}[words[k+1]])
			}
		}
		if at == 0 {
			do()
			continue
		}
		inside(t, words[at-1], do) // ip netns exec NAME
	}
}

// inside does something in a named namespace.
func inside(t *testing.T, name string, do func()) {
	t.Helper()
	var fds [2]int
	for i, path := range []string{"/proc/thread-self/ns/net", "/run/netns/" + name} {
		fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer unix.Close(fd)
		fds[i] = fd
	}
	if err := unix.Setns(fds[1], unix.CLONE_NEWNET); err != nil {
		t.Fatal(err)
	}
	do()
	if err := unix.Setns(fds[0], unix.CLONE_NEWNET); err != nil {
		t.Fatal(err)
	}
}

// farSpace makes a namespace with a name that the test alone has, with the other end of a new eth0.
func farSpace(t *testing.T) {
	t.Helper()
	name := fmt.Sprint("proffer-hostcheck-", os.Getpid())
	run(t, "ip", "netns", "add", name)
	t.Cleanup(func() { run(t, "ip", "netns", "del", name) })
	space, err := os.Open("/run/netns/" + name)
	if err != nil {
		t.Fatal(err)
	}
	defer space.Close()
	v := &netlink.Veth{LinkAttrs: netlink.NewLinkAttrs(), PeerName: "port0", PeerNamespace: netlink.NsFd(int(space.Fd()))}
	v.Name = "eth0"
	if err := netlink.LinkAdd(v); err != nil {
		t.Fatal(err)
	}
}

// commands runs some, each in a string.
func commands(t *testing.T, all ...string) {
	t.Helper()
	for _, c := range all {
		run(t, strings.Fields(c)...)
	}
}

// TestAdviceEnds: each piece of advice of this package that names a command is there, and is gone when the
// command was run. Advice that no case here meets fails the test.
func TestAdviceEnds(t *testing.T) {
	vip4, vip6 := netip.MustParseAddr("203.0.113.80"), netip.MustParseAddr("2001:db8:f::1")
	some := func(advice []string, err error) []string {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return advice
	}
	veth := func() {
		commands(t, "ip link add eth0 type veth peer name port0", "ip link set eth0 up", "ip link set port0 up")
	}
	edge := &topo.EdgeLB{
		Clients: "eth0", World: "port0", Public: []netip.Prefix{netip.PrefixFrom(vip4, 32)},
		Services: []topo.EdgeService{{Prefixes: []netip.Prefix{netip.MustParsePrefix("10.1.0.0/16"), netip.MustParsePrefix("2001:db8:1::/48")}}},
	}
	answers := func() []string { return some(Answers("eth0", []netip.Addr{vip4, vip6})) }
	var seen []string
	for _, c := range []struct {
		label  string
		before func()
		least  int // pieces of advice
		advice func() []string
	}{
		{"no address of the host", veth, 2, func() []string { return VIPs([]netip.Addr{vip4, vip6}) }},
		{"veth", veth, 3, func() []string { return some(Link("eth0", true)) }},
		{"veth, the other end in a namespace with a name", func() { farSpace(t) }, 3, func() []string { return some(Link("eth0", true)) }},
		{"port of a bridge", func() {
			commands(t, "ip link add br0 type bridge", "ip link add eth0 type veth peer name port0", "ip link set eth0 master br0")
			set(t, "eth0", unix.ETHTOOL_STXCSUM, 0)
			set(t, "port0", unix.ETHTOOL_STXCSUM, 0)
			set(t, "port0", unix.ETHTOOL_SGRO, 1)
		}, 1, func() []string { return some(Link("eth0", true)) }},
		{"VIPs of lo are answered for", func() { veth(); commands(t, "ip addr add 203.0.113.80/32 dev lo") }, 2, answers},
		{"VIPs of the link are answered for", func() {
			veth()
			commands(t, "ip addr add 203.0.113.80/24 dev eth0", "ip addr add 2001:db8:f::1/64 dev eth0 nodad")
		}, 2, answers},
		{"no router", func() {
			veth()
			for _, path := range []string{"ipv4/conf/eth0", "ipv6/conf/eth0", "ipv6/conf/all"} {
				turn(t, "net/"+path+"/forwarding", "0")
			}
		}, 3, func() []string { return Router("eth0", 4, 6) }},
		{"a strict source filter", func() { veth(); turn(t, "net/ipv4/conf/eth0/rp_filter", "1") }, 1, func() []string { return SourceFilter("eth0") }},
		{"past the functions", func() {
			veth()
			turn(t, "net/ipv4/conf/all/forwarding", "1")
			turn(t, "net/ipv6/conf/all/forwarding", "1")
		}, 5, func() []string { return some(Bypass(edge)) }},
	} {
		enter(t)
		c.before()
		first := c.advice()
		if len(first) < c.least {
			t.Errorf("%s: %d pieces of advice, want %d: %q", c.label, len(first), c.least, first)
		}
		for left := first; len(left) > 0; left = c.advice() { // the second VIP's answers show when the first's are gone
			for _, a := range left {
				follow(t, a)
				for late := time.Now().Add(10 * time.Second); slices.Contains(c.advice(), a); time.Sleep(time.Millisecond) { // a route comes later
					if time.Now().After(late) {
						t.Fatalf("%s: advice that was followed stays: %q", c.label, a)
					}
				}
			}
			seen = append(seen, left...)
		}
	}
	for _, text := range adviceTexts(t) {
		met := slices.ContainsFunc(seen, func(a string) bool {
			return !slices.ContainsFunc(text, func(part string) bool { return !strings.Contains(a, part) })
		})
		if outOfSight := strings.Contains(strings.Join(text, ""), "PEER"); met == outOfSight {
			t.Errorf("advice with the parts %q: met %v", text, met)
		}
	}
}

// adviceTexts are the constant parts of each text of this package that has a command.
func adviceTexts(t *testing.T) (all [][]string) {
	t.Helper()
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range files {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			literal, is := n.(*ast.BasicLit)
			if !is || literal.Kind != token.STRING {
				return true
			}
			text, err := strconv.Unquote(literal.Value)
			if err == nil && strings.Contains(text, "`") {
				all = append(all, constantParts(text))
			}
			return true
		})
	}
	if len(all) < 8 {
		t.Fatalf("the package has %d texts with a command", len(all))
	}
	return all
}

// constantParts are those of a format between its verbs.
func constantParts(format string) (parts []string) {
	verb := func(r rune) bool { return r == '%' }
	for i, part := range strings.FieldsFunc(format, verb) {
		if i > 0 || strings.HasPrefix(format, "%") {
			part = strings.TrimLeft(part, "[0123456789]")
			part = part[1:] // the verb
		}
		if len(part) > 3 {
			parts = append(parts, part)
		}
	}
	return parts
}
