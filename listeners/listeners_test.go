package listeners

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"proffer/topo"
)

// TestListeners: this process is found at the addresses that it listens at, the program of another
// one by its name, and a process of which the files cannot be seen is one that cannot be seen.
func TestListeners(t *testing.T) {
	vip := func(network, address string) topo.VIP {
		t.Helper()
		at := topo.VIP{}
		var local net.Addr
		if strings.HasPrefix(network, "udp") {
			c, err := net.ListenPacket(network, address)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { c.Close() })
			at.Protocol, local = topo.UDP, c.LocalAddr()
		} else {
			l, err := net.Listen(network, address)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { l.Close() })
			local = l.Addr()
		}
		bound := netip.MustParseAddrPort(local.String())
		at.Addr, at.Port = bound.Addr(), bound.Port()
		return at
	}
	on := func(v topo.VIP, addr string) topo.VIP {
		v.Addr = netip.MustParseAddr(addr)
		return v
	}
	four, six := vip("tcp4", "127.0.0.1:0"), vip("tcp6", "[::1]:0")
	any4, any6, udp := vip("tcp4", "0.0.0.0:0"), vip("tcp6", "[::]:0"), vip("udp6", "[::1]:0")
	free := six
	free.Protocol = topo.UDP
	want := map[topo.VIP]bool{
		four: true, on(four, "127.0.0.2"): false, six: true, on(six, "::2"): false,
		on(any4, "192.0.2.1"): true, on(any4, "2001:db8::1"): false, on(any6, "2001:db8::1"): true,
		udp: true, free: false,
	}
	var vips []topo.VIP
	for v := range want {
		vips = append(vips, v)
	}
	found, err := Of("/proc", "", vips)
	if err != nil {
		t.Fatal(err)
	}
	for v, listens := range want {
		switch got := found[v]; {
		case !listens && len(got) > 0:
			t.Errorf("%v: %v", v, got)
		case listens && (len(got) != 1 || got[0].PID != os.Getpid() || got[0].Name != filepath.Base(os.Args[0])):
			t.Errorf("%v: %v, want this process", v, got)
		}
	}
}

// TestListenersOfOthers: of the processes of a program that share a socket the first one stands for
// all; without CAP_SYS_PTRACE it cannot be seen.
func TestListenersOfOthers(t *testing.T) {
	if vip := os.Getenv("PROFFER_TEST_VIP"); vip != "" { // the process below, without the capability
		at := netip.MustParseAddrPort(vip)
		found, err := Of("/proc", "", []topo.VIP{{Addr: at.Addr(), Port: at.Port()}})
		fmt.Println(found, err)
		return
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	at := netip.MustParseAddrPort(l.Addr().String())
	l.Close()
	dir, err := os.MkdirTemp("/tmp", "proffer-listeners-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	conf := filepath.Join(dir, "nginx.conf")
	text := fmt.Sprintf("daemon off; worker_processes 2; pid %[1]s/pid; error_log %[1]s/log; events {}\nhttp { access_log off; client_body_temp_path %[1]s/1; proxy_temp_path %[1]s/2; fastcgi_temp_path %[1]s/3; uwsgi_temp_path %[1]s/4; scgi_temp_path %[1]s/5; server { listen %s; } }\n", dir, at)
	if err := os.WriteFile(conf, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("nginx", "-c", conf)
	cmd.SysProcAttr = &unix.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		unix.Kill(-cmd.Process.Pid, unix.SIGKILL)
		cmd.Wait()
	})
	var found []Process
	for late := time.Now().Add(10 * time.Second); len(found) == 0 && time.Now().Before(late); time.Sleep(10 * time.Millisecond) {
		all, err := Of("/proc", "", []topo.VIP{{Addr: at.Addr(), Port: at.Port()}})
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range all {
			found = p
		}
	}
	if len(found) != 1 || found[0].PID != cmd.Process.Pid || found[0].Name != "nginx" || !found[0].TLS {
		t.Errorf("found %+v, want nginx, process %d, with TLS", found, cmd.Process.Pid)
	}
	blind := exec.Command("setpriv", "--bounding-set=-all,+net_admin", "--inh-caps=-all", os.Args[0], "-test.run=^TestListenersOfOthers$")
	blind.Env = append(os.Environ(), "PROFFER_TEST_VIP="+at.String())
	out, err := blind.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "a process that the agent cannot see without CAP_SYS_PTRACE") {
		t.Errorf("without CAP_SYS_PTRACE: %v, %s", err, out)
	}
}

func FuzzSockets(f *testing.F) {
	f.Add("  sl  local_address\n   0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 12345 1\n")
	f.Fuzz(func(t *testing.T, text string) {
		for _, s := range sockets(strings.NewReader(text), "0A") {
			if !s.local.IsValid() || s.inode == 0 {
				t.Fatalf("%+v", s)
			}
		}
	})
}

// TestBoundsOfReading: a process with many open files or mappings costs no more than the bounds.
func TestBoundsOfReading(t *testing.T) {
	folder := t.TempDir()
	for i := range mostFiles + 2*filesAtOnce {
		if err := os.Symlink(fmt.Sprintf("socket:[%d]", i+1), filepath.Join(folder, fmt.Sprint(i))); err != nil {
			t.Fatal(err)
		}
	}
	if n := len(open(folder)); n < mostFiles || n > mostFiles+filesAtOnce {
		t.Errorf("%d sockets, want %d", n, mostFiles)
	}
	const library = "7f00-7f01 r-xp 00000000 08:01 1 /usr/lib/libssl.so.3\n"
	line := "7f00-7f01 r-xp 00000000 08:01 1 /usr/lib/" + strings.Repeat("x", 4000) + "\n"
	for n, want := range map[int]bool{0: true, longestMaps/len(line) - 1: true, longestMaps/len(line) + 1: false} {
		if err := os.WriteFile(filepath.Join(folder, "maps"), []byte(strings.Repeat(line, n)+library), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := speaksTLS(folder); got != want {
			t.Errorf("behind %d mappings: TLS is %v", n, got)
		}
	}
}
