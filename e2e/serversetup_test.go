package e2e

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"proffer/lab/farmrun"
	"proffer/lab/testbed"
	"proffer/topo"
)

// Servers that are set up by the commands of `proffer server-setup` alone.

// bare takes from a server all that the bed gave it, and leaves the settings that
// a distribution may have.
func bare(t *testing.T, bed *testbed.Bed, n *testbed.Node) {
	t.Helper()
	for _, vip := range []netip.Addr{bed.VIP, bed.VIP4} {
		in(t, n, "ip", "addr", "del", netip.PrefixFrom(vip, vip.BitLen()).String(), "dev", "lo")
	}
	bareSettings(t, n)
}

func bareSettings(t *testing.T, n *testbed.Node) {
	t.Helper()
	for path, value := range map[string]string{
		"net/ipv4/conf/all/arp_ignore": "0", "net/ipv4/conf/all/arp_announce": "0",
		"net/ipv4/conf/all/rp_filter": "1", "net/ipv4/conf/default/rp_filter": "1", "net/ipv4/conf/eth0/rp_filter": "1",
	} {
		setSysctl(t, n, path, value)
	}
}

// onOneLink puts the links of nodes on a bridge of the router, which has their
// addresses and routes from then on.
func onOneLink(t *testing.T, bed *testbed.Bed, lb *testbed.Node, servers ...*testbed.Node) {
	t.Helper()
	router := func(args ...string) { t.Helper(); in(t, bed.Router, "ip", args...) }
	router("link", "add", "br0", "type", "bridge")
	router("link", "set", "br0", "up")
	for _, n := range append([]*testbed.Node{lb}, servers...) {
		router("addr", "flush", "dev", n.Link)
		router("link", "set", n.Link, "master", "br0")
		six, four := n.Addr.As16(), n.Addr4.As4()
		six[15], four[3] = 1, 1
		router("-6", "addr", "add", netip.AddrFrom16(six).String()+"/64", "dev", "br0", "nodad")
		router("addr", "add", netip.AddrFrom4(four).String()+"/24", "dev", "br0")
		router("-6", "route", "replace", n.Locator.String(), "via", n.Addr.String(), "dev", "br0")
	}
	router("-6", "route", "replace", bed.VIP.String()+"/128", "via", lb.Addr.String(), "dev", "br0")
	router("route", "replace", bed.VIP4.String()+"/32", "via", lb.Addr4.String(), "dev", "br0")
	for _, n := range servers {
		in(t, lb, "ip", "-6", "route", "add", n.Addr.String()+"/128", "dev", "eth0")
		in(t, lb, "ip", "route", "add", n.Addr4.String()+"/32", "dev", "eth0")
	}
}

// bareFarm is a bed with servers that server-setup sets up.
type bareFarm struct {
	*testbed.Bed
	fronting *testbed.Node // has its application in a container
}

// setup is `proffer server-setup` on a server.
func (bed bareFarm) setup(t *testing.T, n *testbed.Node, args ...string) (stdout, stderr string, err error) {
	t.Helper()
	all := append([]string{"server-setup", "--config", configuration(bed.Bed, bed.LBs[0]), n.Name}, args...)
	if n == bed.fronting {
		all = append(all, "--behind")
	}
	return try(t, n, proffer, all...)
}

// setUp gives the printed commands to a shell on the server.
func (bed bareFarm) setUp(t *testing.T, n *testbed.Node) {
	t.Helper()
	script, stderr, err := bed.setup(t, n)
	if err != nil {
		t.Fatalf("server-setup %s: %v %s", n.Name, err, stderr)
	}
	t.Logf("%s:\n%s", n.Name, script)
	in(t, n, "sh", "-c", script)
	in(t, n, "sh", "-c", script) // again, without harm
}

// wantSetUp demands that --check finds everything, or these parts of reports wrong.
func (bed bareFarm) wantSetUp(t *testing.T, n *testbed.Node, wrong ...string) {
	t.Helper()
	stdout, stderr, err := bed.setup(t, n, "--check")
	if (err == nil) != (len(wrong) == 0) {
		t.Errorf("server-setup --check %s: %v\n%s%s", n.Name, err, stdout, stderr)
	}
	found := 0
	for line := range strings.Lines(stdout) {
		if strings.HasPrefix(line, "wrong") {
			found++
		}
	}
	if found != len(wrong) {
		t.Errorf("%s: %d steps are wrong, want %d:\n%s", n.Name, found, len(wrong), stdout)
	}
	for _, w := range wrong {
		if !strings.Contains(stdout, w) {
			t.Errorf("%s: no report has %q:\n%s", n.Name, w, stdout)
		}
	}
}

const agentlessConf = `daemon off;
worker_processes 1;
user root;
pid %[1]s/nginx.pid;
error_log %[1]s/error.log;
events { worker_connections 1024; }
http {
	access_log off;
	client_max_body_size 0;
	client_body_temp_path %[1]s/body; proxy_temp_path %[1]s/proxy;
	fastcgi_temp_path %[1]s/f; uwsgi_temp_path %[1]s/u; scgi_temp_path %[1]s/s;
	server {
		%[2]s
		location / { return 200 "%[3]s\n"; }
		location /files/ { root %[1]s; dav_methods PUT; create_full_put_path on; add_header Server-Name %[3]s always; }
	}
}
`

// nginxAt runs nginx on addresses of a server: its name at /, and files.
func nginxAt(t *testing.T, bed *testbed.Bed, n *testbed.Node, vips ...netip.Addr) {
	t.Helper()
	dir := filepath.Join(bed.Dir, "nginx-"+n.Name)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	var listen []string
	for _, vip := range vips {
		listen = append(listen, "listen "+netip.AddrPortFrom(vip, testbed.Port).String()+";")
	}
	conf := filepath.Join(dir, "nginx.conf")
	text := fmt.Sprintf(agentlessConf, dir, strings.Join(listen, " "), n.Name)
	if err := os.WriteFile(conf, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	p, err := n.StartCommand(exec.Command(program(t, "nginx"), "-p", dir, "-c", conf, "-e", filepath.Join(dir, "error.log")))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Stop() })
	for _, vip := range vips {
		eventually(t, "nginx listens on "+n.Name, func() bool {
			select {
			case <-p.Done():
				t.Fatalf("nginx ended: %s", p.Log())
			default:
			}
			conn, err := n.DialContext(t.Context(), "tcp", netip.AddrPortFrom(vip, testbed.Port).String())
			if err == nil {
				conn.Close()
			}
			return err == nil
		})
	}
}

// agentlessFarm starts one LB and bare servers with these deliveries, by VIP.
func agentlessFarm(t *testing.T, bed *testbed.Bed, six, four []topo.Server) *farmrun.Farm {
	t.Helper()
	s := settings(t, "single")
	s.LB = func(lb *topo.LB) {
		web := lb.Services[0]
		web4 := web
		web4.Name, web4.VIP.Addr = "web4", bed.VIP4
		web.Servers, web4.Servers = six, four
		lb.Services = []topo.Service{web, web4}
	}
	farm := start(t, bed, s)
	for _, n := range bed.Servers {
		forget(t, farm.Daemon(n))
	}
	return farm
}

// moveMegabytes uploads files and downloads them again until each server had one.
func moveMegabytes(t *testing.T, bed *testbed.Bed, url string, servers ...string) {
	t.Helper()
	const size = 3 << 20
	dir, had := t.TempDir(), map[string]bool{}
	want, got := filepath.Join(dir, "want"), filepath.Join(dir, "got")
	digest := writeBytes(t, want, size)
	for try := 0; len(had) < len(servers) && try < 100; try++ {
		// One connection: PUT, then GET, from the same server.
		out := in(t, bed.Client, "curl", "-sS", "--fail", "--max-time", "60", "-D", "-", "-o", "/dev/null", "-T", want, url+"/files/x",
			"--next", "-sS", "--fail", "--max-time", "60", "-o", got, url+"/files/x")
		if read(t, got) != read(t, want) {
			t.Fatalf("%s: not the %d bytes of digest %s", url, size, digest)
		}
		for _, name := range servers {
			if strings.Contains(out, "Server-Name: "+name+"\r\n") {
				had[name] = true
			}
		}
	}
	if len(had) < len(servers) {
		t.Errorf("%s: files moved with %v, want %v", url, had, servers)
	}
}

// TestServerSetup: nginx on the kernel's End.DT6, End.DX6 and End.DX4, direct
// server return and VXLAN at once, in IPv6 and IPv4, set up by the printed
// commands alone. `single` and `learned` serve them; the check finds each thing
// that is then taken away.
func TestServerSetup(t *testing.T) {
	const conns = 120
	bed := up(t, testbed.Config{Servers: 4})
	lb, s1, s2, s3, s4 := bed.LBs[0], bed.Servers[0], bed.Servers[1], bed.Servers[2], bed.Servers[3]
	onOneLink(t, bed, lb, s3)
	app, err := bed.Behind(s2, testbed.RoutedVeth)
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range []*testbed.Node{s1, s3, s4} {
		bare(t, bed, n)
	}
	bareSettings(t, s2)
	setSysctl(t, s2, "net/ipv6/conf/all/forwarding", "0")
	in(t, s4, "ip", "route", "add", lb.Addr4.String()+"/32", "dev", "lo") // not the link that its packets come by
	device := topo.MAC{2, 0, 0, 0, 0, 1}
	at := func(d topo.Delivery, n *testbed.Node) topo.Server {
		return topo.Server{Name: n.Name, Delivery: d, Locator: n.Locator, Weight: 1}
	}
	farm := agentlessFarm(t, bed, []topo.Server{
		at(topo.ByDT6, s1), at(topo.ByDX6, s2),
		{Name: "s3", Delivery: topo.ByL2, Address: s3.Addr, Weight: 1},
		{Name: "s4", Delivery: topo.ByVXLAN, Address: s4.Addr, VNI: 100, MAC: device, Weight: 1},
	}, []topo.Server{
		at(topo.ByDX4, s1), at(topo.ByDX4, s2),
		{Name: "s3", Delivery: topo.ByL2, Address: s3.Addr4, Weight: 1},
		{Name: "s4", Delivery: topo.ByVXLAN, Address: s4.Addr4, VNI: 100, MAC: device, Weight: 1},
	})
	bare := bareFarm{bed, s2}
	for _, n := range bed.Servers {
		bare.setUp(t, n)
		bare.wantSetUp(t, n)
	}
	for _, n := range []*testbed.Node{s1, app, s3, s4} {
		nginxAt(t, bed, n, bed.VIP, bed.VIP4)
	}

	c := record(t, bed)
	names := []string{s1.Name, app.Name, s3.Name, s4.Name}
	for _, at := range []string{url, url4} {
		share := answerers(t, bed, at, conns)
		for _, name := range names { // by hash: none is left out in 10^14 runs
			if share[name] == 0 {
				t.Errorf("%s never answered at %s: %v", name, at, share)
			}
		}
	}
	settled(t, bed)
	c.stop(t)
	judge(t, c.file, 10*conns)
	wantGood(t, c.file, "ip.checksum.status", 5*conns)
	for _, at := range []string{url, url4} {
		moveMegabytes(t, bed, at, names...)
	}
	for _, by := range []string{"by_seg6", "by_l2", "by_vxlan"} {
		if n := counter(t, farm, by, lb); n < conns {
			t.Errorf("%s: %d packets, want %d at least", by, n, conns)
		}
	}
	want := "single, 4 servers (1 by dt6, 1 by dx6, 1 by l2, 1 by vxlan)"
	if mode := status(t, farm, lb).Services[0].Mode; mode != want {
		t.Errorf("status has %q, want %q", mode, want)
	}
	wantLearned(t, farm, names, conns)
	bare.checkFindsEach(t)
}

// checkFindsEach takes one thing after another from the servers, and back.
func (bed bareFarm) checkFindsEach(t *testing.T) {
	t.Helper()
	for _, c := range []struct {
		server int
		harm   string
		wrong  string
	}{
		{0, "ip -6 addr del 2001:db8:f::1/128 dev lo", "2001:db8:f::1 is no address of lo: `ip addr replace 2001:db8:f::1/128 dev lo`"},
		{0, "ip addr del 203.0.113.1/32 dev lo", "203.0.113.1 is no address of lo"},
		{0, "ip -6 route del 5f00:0:2:1:d7::/128", "no seg6local route to 5f00:0:2:1:d7::/128, or another route comes before it: `ip -6 route replace"},
		{0, "ip -6 route replace 5f00:0:2:1:d7:4::/128 encap seg6local action End.DT6 table local dev eth0", "want \"End.DX4 nh4 0.0.0.0\""},
		{0, "sysctl -qw net/ipv4/conf/eth0/rp_filter=0", "net/ipv4/conf/eth0/rp_filter is 0 and net/ipv4/conf/all/rp_filter is 1"},
		{1, "sysctl -qw net/ipv6/conf/all/forwarding=0", "net/ipv6/conf/all/forwarding is 0: `sysctl -qw net/ipv6/conf/all/forwarding=1`"},
		{2, "sysctl -qw net/ipv4/conf/all/arp_ignore=0", "net/ipv4/conf/all/arp_ignore is 0"},
		{2, "sysctl -qw net/ipv4/conf/all/arp_announce=0", "net/ipv4/conf/all/arp_announce is 0"},
		{3, "sysctl -qw net/ipv4/conf/eth0/rp_filter=0", "net/ipv4/conf/eth0/rp_filter is 0 and net/ipv4/conf/all/rp_filter is 1"},
		{3, "ip link set vxlan100 down", "vxlan100 is down: `ip link set vxlan100 up`"},
		{3, "ip link set vxlan100-4 address 02:00:00:00:00:02", "vxlan100-4 has address 02:00:00:00:00:02, want 02:00:00:00:00:01"},
	} {
		n := bed.Servers[c.server]
		in(t, n, "sh", "-c", c.harm)
		bed.wantSetUp(t, n, c.wrong)
		if strings.Contains(c.harm, "address 02") {
			in(t, n, "ip", "link", "del", "vxlan100-4")
		}
		bed.setUp(t, n)
		bed.wantSetUp(t, n)
	}
	bed.undone(t)
}

// undone: --undo takes the set-up back; --json has the report.
func (bed bareFarm) undone(t *testing.T) {
	t.Helper()
	for _, n := range bed.Servers {
		script, _, err := bed.setup(t, n, "--undo")
		if err != nil {
			t.Fatal(err)
		}
		in(t, n, "sh", "-ec", script)
		out, _, err := bed.setup(t, n, "--check", "--json")
		var report struct {
			Steps []struct {
				Command, Undo string
				OK            *bool
			}
		}
		if e := json.Unmarshal([]byte(out), &report); e != nil || err == nil {
			t.Fatalf("%v, %v: %s", err, e, out)
		}
		for _, step := range report.Steps {
			if step.Undo != "" && *step.OK {
				t.Errorf("%s: undone, and there: %s", n.Name, step.Command)
			}
		}
	}
}

// TestServerSetupLBDies: another LB that never saw the flows finds the servers of all of them, with
// kernels alone and a pool that stays.
func TestServerSetupLBDies(t *testing.T) {
	bed := up(t, testbed.Config{Servers: 4, LBs: 2})
	var six, four []topo.Server
	for _, n := range bed.Servers {
		bare(t, bed, n)
		six = append(six, topo.Server{Name: n.Name, Delivery: topo.ByDT6, Locator: n.Locator, Weight: 1})
		four = append(four, topo.Server{Name: n.Name, Delivery: topo.ByDX4, Locator: n.Locator, Weight: 1})
	}
	farm := agentlessFarm(t, bed, six, four)
	for _, n := range bed.Servers {
		bareFarm{Bed: bed}.setUp(t, n)
	}
	echoes(t, bed, bed.Servers...)
	announce(t, bed, bed.LBs[0])
	for i, vip := range []netip.Addr{bed.VIP, bed.VIP4} {
		announce(t, bed, bed.LBs[0])
		flows := openTo(t, bed, vip, clientsOf(bed, vip), 20000, singleFlows)
		at := flows.Servers()
		announce(t, bed, bed.LBs[1])
		for range 2 {
			if dead, moved := lost(t, flows, at); dead+moved > 0 {
				t.Errorf("%v: %d of %d flows died, %d were answered by another server", vip, dead, singleFlows, moved)
			}
		}
		if n := counter(t, farm, "recover_presumed", bed.LBs[1]); n < uint64(i+1)*singleFlows {
			t.Errorf("%v: %d flows presumed, want %d", vip, n, (i+1)*singleFlows)
		}
	}
}
