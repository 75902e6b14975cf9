package agentless

import (
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"proffer/e2e/kit"
	"proffer/lab/testbed"
	"proffer/topo"
)

// onOneLink puts the links of nodes on a bridge of the router, which has their
// addresses and routes from then on.
func onOneLink(t *testing.T, bed *testbed.Bed, lb *testbed.Node, servers ...*testbed.Node) {
	t.Helper()
	router := func(args ...string) { t.Helper(); kit.In(t, bed.Router, "ip", args...) }
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
		kit.In(t, lb, "ip", "-6", "route", "add", n.Addr.String()+"/128", "dev", "eth0")
		kit.In(t, lb, "ip", "route", "add", n.Addr4.String()+"/32", "dev", "eth0")
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
	p, err := n.StartCommand(exec.Command(kit.Program(t, "nginx"), "-p", dir, "-c", conf, "-e", filepath.Join(dir, "error.log")))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Stop() })
	for _, vip := range vips {
		kit.Eventually(t, "nginx listens on "+n.Name, func() bool {
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

// moveMegabytes uploads files and downloads them again until each server had one.
func moveMegabytes(t *testing.T, bed *testbed.Bed, url string, servers ...string) {
	t.Helper()
	const size = 3 << 20
	dir, had := t.TempDir(), map[string]bool{}
	want, got := filepath.Join(dir, "want"), filepath.Join(dir, "got")
	digest := kit.WriteBytes(t, want, size)
	for try := 0; len(had) < len(servers) && try < 100; try++ {
		// One connection: PUT, then GET, from the same server.
		out := kit.In(t, bed.Client, "curl", "-sS", "--fail", "--max-time", "60", "-D", "-", "-o", "/dev/null", "-T", want, url+"/files/x",
			"--next", "-sS", "--fail", "--max-time", "60", "-o", got, url+"/files/x")
		if kit.Read(t, got) != kit.Read(t, want) {
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
	bed := kit.Up(t, testbed.Config{Servers: 4})
	lb, s1, s2, s3, s4 := bed.LBs[0], bed.Servers[0], bed.Servers[1], bed.Servers[2], bed.Servers[3]
	onOneLink(t, bed, lb, s3)
	app, err := bed.Behind(s2, testbed.RoutedVeth)
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range []*testbed.Node{s1, s3, s4} {
		kit.Bare(t, bed, n)
	}
	kit.BareSettings(t, s2)
	kit.SetSysctl(t, s2, "net/ipv6/conf/all/forwarding", "0")
	kit.In(t, s4, "ip", "route", "add", lb.Addr4.String()+"/32", "dev", "lo") // not the link that its packets come by
	device := topo.MAC{2, 0, 0, 0, 0, 1}
	at := func(d topo.Delivery, n *testbed.Node) topo.Server {
		return topo.Server{Name: n.Name, Delivery: d, Locator: n.Locator, Weight: 1}
	}
	farm := kit.AgentlessFarm(t, bed, []topo.Server{
		at(topo.ByDT6, s1), at(topo.ByDX6, s2),
		{Name: "s3", Delivery: topo.ByL2, Address: s3.Addr, Weight: 1},
		{Name: "s4", Delivery: topo.ByVXLAN, Address: s4.Addr, VNI: 100, MAC: device, Weight: 1},
	}, []topo.Server{
		at(topo.ByDX4, s1), at(topo.ByDX4, s2),
		{Name: "s3", Delivery: topo.ByL2, Address: s3.Addr4, Weight: 1},
		{Name: "s4", Delivery: topo.ByVXLAN, Address: s4.Addr4, VNI: 100, MAC: device, Weight: 1},
	})
	bare := kit.BareFarm{Bed: bed, Fronting: s2}
	for _, n := range bed.Servers {
		bare.SetUp(t, n)
		bare.WantSetUp(t, n)
	}
	for _, n := range []*testbed.Node{s1, app, s3, s4} {
		nginxAt(t, bed, n, bed.VIP, bed.VIP4)
	}

	c := kit.Record(t, bed)
	names := []string{s1.Name, app.Name, s3.Name, s4.Name}
	for _, at := range []string{kit.URL, kit.URL4} {
		share := answerers(t, bed, at, conns)
		for _, name := range names { // by hash: none is left out in 10^14 runs
			if share[name] == 0 {
				t.Errorf("%s never answered at %s: %v", name, at, share)
			}
		}
	}
	kit.Settled(t, bed)
	c.Stop(t)
	kit.Judge(t, c.File, 10*conns)
	kit.WantGood(t, c.File, "ip.checksum.status", 5*conns)
	for _, at := range []string{kit.URL, kit.URL4} {
		moveMegabytes(t, bed, at, names...)
	}
	for _, by := range []string{"by_seg6", "by_l2", "by_vxlan"} {
		if n := kit.Counter(t, farm, by, lb); n < conns {
			t.Errorf("%s: %d packets, want %d at least", by, n, conns)
		}
	}
	want := "single, 4 servers (1 by dt6, 1 by dx6, 1 by l2, 1 by vxlan)"
	if mode := kit.Status(t, farm, lb).Services[0].Mode; mode != want {
		t.Errorf("status has %q, want %q", mode, want)
	}
	wantLearned(t, farm, names, conns)
	bare.CheckFindsEach(t)
}

// TestServerSetupLBDies: another LB that never saw the flows finds the servers of all of them, with
// kernels alone and a pool that stays.
func TestServerSetupLBDies(t *testing.T) {
	bed := kit.Up(t, testbed.Config{Servers: 4, LBs: 2})
	var six, four []topo.Server
	for _, n := range bed.Servers {
		kit.Bare(t, bed, n)
		six = append(six, topo.Server{Name: n.Name, Delivery: topo.ByDT6, Locator: n.Locator, Weight: 1})
		four = append(four, topo.Server{Name: n.Name, Delivery: topo.ByDX4, Locator: n.Locator, Weight: 1})
	}
	farm := kit.AgentlessFarm(t, bed, six, four)
	for _, n := range bed.Servers {
		kit.BareFarm{Bed: bed}.SetUp(t, n)
	}
	kit.Echoes(t, bed, bed.Servers...)
	kit.Announce(t, bed, bed.LBs[0])
	for i, vip := range []netip.Addr{bed.VIP, bed.VIP4} {
		kit.Announce(t, bed, bed.LBs[0])
		flows := kit.OpenTo(t, bed, vip, kit.ClientsOf(bed, vip), 20000, kit.SingleFlows)
		at := flows.Servers()
		kit.Announce(t, bed, bed.LBs[1])
		for range 2 {
			if dead, moved := kit.Lost(t, flows, at); dead+moved > 0 {
				t.Errorf("%v: %d of %d flows died, %d were answered by another server", vip, dead, kit.SingleFlows, moved)
			}
		}
		if n := kit.Counter(t, farm, "recover_presumed", bed.LBs[1]); n < uint64(i+1)*kit.SingleFlows {
			t.Errorf("%v: %d flows presumed, want %d", vip, n, (i+1)*kit.SingleFlows)
		}
	}
}
