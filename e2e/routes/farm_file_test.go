package routes

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"proffer/e2e/kit"
)

// oneLink is hosts on one link, by name: a bridge, and a namespace each. No host has a route for a locator.
type oneLink struct {
	t   *testing.T
	dir string
	run string
}

// newLink gives host i the addresses 10.0.0.i and 2001:db8:1::i; servers also have the VIPs on lo.
func newLink(t *testing.T, hosts []string, servers map[string]bool, vips ...string) *oneLink {
	t.Helper()
	s := &oneLink{t, t.TempDir(), fmt.Sprintf("proffer-farm%d-", os.Getpid())}
	s.make("sw")
	s.ip("sw", "link add br0 type bridge")
	s.ip("sw", "link set br0 up")
	for i, h := range hosts {
		s.make(h)
		s.ip("sw", "link add p"+h+" type veth peer name eth0 netns "+s.run+h)
		s.ip("sw", "link set p"+h+" master br0 up")
		s.in("sw", "ethtool", "-K", "p"+h, "gro", "on", "tx", "off")
		s.in(h, "ethtool", "-K", "eth0", "tx", "off")
		s.ip(h, "link set eth0 up")
		s.ip(h, fmt.Sprintf("addr add 10.0.0.%d/24 dev eth0", i+1))
		s.ip(h, fmt.Sprintf("addr add 2001:db8:1::%d/64 dev eth0 nodad", i+1))
		if !servers[h] {
			continue
		}
		s.in(h, "sysctl", "-qw", "net.ipv4.conf.all.arp_ignore=1", "net.ipv4.conf.all.arp_announce=2", "net.core.somaxconn=4096")
		for _, vip := range vips {
			s.ip(h, "addr add "+vip+" dev lo nodad")
		}
	}
	return s
}

func (s *oneLink) make(host string) {
	s.t.Helper()
	if out, err := exec.Command("ip", "netns", "add", s.run+host).CombinedOutput(); err != nil {
		s.t.Fatalf("%v: %s", err, out)
	}
	s.t.Cleanup(func() {
		if out, err := exec.Command("ip", "netns", "del", s.run+host).CombinedOutput(); err != nil {
			s.t.Errorf("%v: %s", err, out)
		}
	})
	s.ip(host, "link set lo up")
}

func (s *oneLink) ip(host, args string) {
	s.t.Helper()
	args = strings.ReplaceAll(args, " nodad", map[bool]string{true: " nodad", false: ""}[strings.Contains(args, ":")])
	if out, err := exec.Command("ip", append([]string{"-n", s.run + host}, strings.Fields(args)...)...).CombinedOutput(); err != nil {
		s.t.Fatalf("ip %s: %v: %s", args, err, out)
	}
}

func (s *oneLink) in(host string, command ...string) string {
	s.t.Helper()
	out, err := exec.Command("ip", append([]string{"netns", "exec", s.run + host}, command...)...).CombinedOutput()
	if err != nil {
		s.t.Fatalf("%s: %v: %v: %s", host, command, err, out)
	}
	return string(out)
}

// start runs a command on a host until the test ends.
func (s *oneLink) start(host string, command ...string) (log func() string) {
	s.t.Helper()
	path := filepath.Join(s.dir, host+".log")
	file, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	kit.Must(s.t, err)
	cmd := exec.Command("ip", append([]string{"netns", "exec", s.run + host}, command...)...)
	cmd.Stdout, cmd.Stderr = file, file
	kit.Must(s.t, cmd.Start())
	log = func() string {
		text, _ := os.ReadFile(path)
		return string(text)
	}
	s.t.Cleanup(func() {
		cmd.Process.Signal(os.Interrupt)
		cmd.Wait()
		file.Close()
		if s.t.Failed() {
			s.t.Logf("%s:\n%s", host, log())
		}
	})
	return log
}

// TestFarmFile: init, run and curl, on one segment without a route for any locator, IPv4 and IPv6, servers with and
// without an agent; then the file changes under requests: a server gets another weight, which no request notices.
func TestFarmFile(t *testing.T) {
	for _, c := range []struct {
		name  string
		flags []string // of init
		agent []string
	}{
		{"agents", []string{"--server", "s1=2001:db8:1::3", "--server", "s2=10.0.0.4"}, []string{"s1", "s2"}},
		{"agentless", []string{"--agentless", "s1=10.0.0.3", "--agentless", "s2=10.0.0.4"}, nil},
	} {
		t.Run(c.name, func(t *testing.T) { playFarmFile(t, c.flags, c.agent) })
	}
}

func playFarmFile(t *testing.T, flags, agents []string) {
	curl := kit.Program(t, "curl")
	s := newLink(t, []string{"client", "lb1", "s1", "s2"}, map[string]bool{"s1": true, "s2": true}, "192.0.2.10/32", "2001:db8:f::1/128")
	s.ip("client", "route add 192.0.2.10/32 via 10.0.0.2")
	s.ip("client", "route add 2001:db8:f::1/128 via 2001:db8:1::2")
	for _, h := range []string{"s1", "s2"} {
		web(t, s, h)
	}
	out, err := exec.Command(kit.Proffer, append([]string{"init", "--farm", "shop", "--lb", "lb1=2001:db8:1::2", "--vip", "[2001:db8:f::1]:80", "--vip", "192.0.2.10:80", "--secrets", s.dir}, flags...)...).Output()
	kit.Must(t, err)
	file := filepath.Join(s.dir, "farm.yaml")
	text := string(out)
	for _, h := range append([]string{"lb1"}, agents...) { // namespaces share the host's paths
		own := fmt.Sprintf("{control: %s, state: %s, ", filepath.Join(s.dir, h+".sock"), filepath.Join(s.dir, h+".json"))
		if h != "lb1" {
			own = fmt.Sprintf("{control: %s, ", filepath.Join(s.dir, h+".sock"))
		}
		text = strings.Replace(text, "  "+h+": {", "  "+h+": "+own, 1)
	}
	kit.Must(t, os.WriteFile(file, []byte(text), 0o600))
	for _, h := range append([]string{"lb1"}, agents...) {
		log := s.start(h, kit.Proffer, "run", "--farm", file, "--name", h, "--secrets", filepath.Join(s.dir, "secrets-"+h+".yaml"), "--detach")
		kit.Eventually(t, h+" is ready", func() bool { return strings.Contains(log(), "msg=ready") })
	}
	answers := func(url string) string {
		return strings.TrimSpace(s.in("client", curl, "-gsS", "--fail", "--max-time", "20", url))
	}
	for _, url := range []string{"http://192.0.2.10/", "http://[2001:db8:f::1]/"} {
		met := map[string]bool{}
		kit.Eventually(t, "both servers answer "+url, func() bool {
			met[answers(url)] = true
			return met["s1"] && met["s2"]
		})
	}

	lb := func() string { text, _ := os.ReadFile(filepath.Join(s.dir, "lb1.log")); return string(text) }
	for _, role := range []string{"weight: 7, ", "weight: 0, "} {
		before := strings.Count(lb(), "configuration reloaded")
		changed := strings.Replace(text, "  s2: {", "  s2: {"+role, 1)
		kit.Must(t, os.WriteFile(file+".new", []byte(changed), 0o600))
		if out, err := exec.Command(kit.Proffer, "check", file+".new").CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		kit.Must(t, os.Rename(file+".new", file))
		for deadline := time.Now().Add(kit.Patience); strings.Count(lb(), "configuration reloaded") == before; {
			answers("http://192.0.2.10/") // under requests, each of which must be answered
			if time.Now().After(deadline) {
				t.Fatalf("the change of the file is not applied:\n%s", lb())
			}
		}
	}
	for range 20 {
		for _, url := range []string{"http://192.0.2.10/", "http://[2001:db8:f::1]/"} {
			if who := answers(url); who != "s1" {
				t.Errorf("%s answers, which is drained", who)
			}
		}
	}
}

// web serves the host's name on port 80 of all of its addresses.
func web(t *testing.T, s *oneLink, host string) {
	t.Helper()
	folder := filepath.Join(s.dir, "www-"+host)
	kit.Must(t, os.Mkdir(folder, 0o755))
	kit.Must(t, os.WriteFile(filepath.Join(folder, "index.html"), []byte(host+"\n"), 0o644))
	s.start(host, kit.Program(t, "python3"), "-c", fmt.Sprintf(`
import http.server, os, socket
os.chdir(%q)
class Server(http.server.ThreadingHTTPServer):
    address_family = socket.AF_INET6
    request_queue_size = 128
Server(("::", 80), http.server.SimpleHTTPRequestHandler).serve_forever()`, folder))
	kit.Eventually(t, host+" listens", func() bool {
		_, err := exec.Command("ip", "netns", "exec", s.run+host, "curl", "-gsS", "http://[::1]/").Output()
		return err == nil
	})
}
