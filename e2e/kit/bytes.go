package kit

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"proffer/lab/farmrun"
	"proffer/lab/testbed"
	"proffer/lab/traffic"
	"proffer/lab/traffic/responder"
	"proffer/topo"
)

// Bulks runs a BulkServer on the VIP, IPv6 and IPv4, of each node.
func Bulks(t *testing.T, bed *testbed.Bed, nodes ...*testbed.Node) {
	t.Helper()
	for _, n := range nodes {
		s := responder.NewBulkServer(n.Name)
		t.Cleanup(func() { s.Close() })
		for _, vip := range []netip.Addr{bed.VIP, bed.VIP4} {
			var l net.Listener
			err := n.Do(func() (err error) {
				l, err = responder.Listen(netip.AddrPortFrom(vip, testbed.Port), farmrun.Backlog)
				return err
			})
			if err != nil {
				t.Fatalf("listen on %s: %v", n.Name, err)
			}
			go s.Serve(l) // ends with Close
		}
	}
}

// ClientsOf are the client's addresses of an address's family.
func ClientsOf(bed *testbed.Bed, vip netip.Addr) []netip.Addr {
	if vip.Is4() {
		return bed.ClientAddrs4
	}
	return bed.ClientAddrs
}

// Begin starts k streams to or from the VIP; first is the port of the first.
func Begin(t *testing.T, bed *testbed.Bed, vip netip.Addr, upload bool, first, k int) *traffic.Transfers {
	t.Helper()
	transfers, err := traffic.Bulk{
		Dial: traffic.Dial{
			To: netip.AddrPortFrom(vip, testbed.Port), From: Ends(ClientsOf(bed, vip), first, k),
			Timeout: Within, Enter: bed.Client.Enter,
		},
		Upload: upload,
	}.Start(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { transfers.Stop() })
	return transfers
}

// Move waits until each stream has moved so many bytes more.
func Move(t *testing.T, when string, transfers *traffic.Transfers, more int64) {
	t.Helper()
	from := transfers.Bytes()
	Eventually(t, fmt.Sprintf("%s, every stream moves %d bytes", when, more), func() bool {
		for i, now := range transfers.Bytes() {
			if now < from[i]+more {
				return false
			}
		}
		return true
	})
}

// Finish ends the streams, of which every byte came.
func Finish(t *testing.T, when string, transfers *traffic.Transfers) {
	t.Helper()
	for _, s := range transfers.Stop() {
		if s.Outcome != traffic.OK {
			t.Errorf("%s: stream from %s to %s: %s after %d bytes (%s)", when, s.From, s.Server, s.Outcome, s.Bytes, s.Cause)
		}
	}
}

// FamilyOf makes the farm's service one of the VIP's family, at both ends.
func FamilyOf(s *farmrun.Settings, vip netip.Addr) {
	s.LB = func(lb *topo.LB) { lb.Services[0].VIP.Addr = vip }
	s.Agent = func(_ *testbed.Node, a *topo.Agent) { a.Services[0].VIP.Addr = vip }
}

// GetBytes asks for /bytes/size and compares.
func GetBytes(ctx context.Context, transport http.RoundTripper, size int64) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, fmt.Sprintf("%s/bytes/%d", URL, size), nil)
	if err != nil {
		return err
	}
	resp, err := transport.RoundTrip(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	got, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	want, err := io.ReadAll(responder.Bytes(size))
	if err == nil && string(got) != string(want) {
		err = fmt.Errorf("%d bytes, not those of /bytes/%d", len(got), size)
	}
	return err
}

// Served is how many packets an agent handed to its stack.
func Served(t *testing.T, farm *farmrun.Farm, n *testbed.Node) (sum uint64) {
	t.Helper()
	for _, name := range []string{"accept_avail", "accept_force", "deliver"} {
		sum += Counter(t, farm, name, n)
	}
	return sum
}

const nginxConf = `daemon off;
worker_processes 1;
user root;
pid %[1]s/nginx.pid;
error_log %[1]s/error.log;
events { worker_connections 4096; }
http {
	access_log off;
	keepalive_timeout 1h;
	keepalive_requests 1000000;
	client_body_temp_path %[1]s/body; proxy_temp_path %[1]s/proxy;
	fastcgi_temp_path %[1]s/f; uwsgi_temp_path %[1]s/u; scgi_temp_path %[1]s/s;
	server {
		listen [%[2]s]:%[3]d backlog=128;
		location / { return 200 "%[4]s\n"; }
		location /held { proxy_pass http://[::1]:9000; proxy_read_timeout 1h; }
	}
}
`

// Nginx runs one on a server's VIP; /held is answered when the test lets go.
func Nginx(t *testing.T, bed *testbed.Bed, n *testbed.Node, let <-chan struct{}) {
	t.Helper()
	upstream, err := n.Listen("tcp6", "[::1]:9000")
	if err != nil {
		t.Fatal(err)
	}
	held := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		<-let
		fmt.Fprintln(w, n.Name)
	})}
	go held.Serve(upstream)
	t.Cleanup(func() { held.Close() })

	dir := filepath.Join(bed.Dir, "nginx-"+n.Name)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	conf := filepath.Join(dir, "nginx.conf")
	text := fmt.Sprintf(nginxConf, dir, bed.VIP, testbed.Port, n.Name)
	if err := os.WriteFile(conf, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(Program(t, "nginx"), "-p", dir, "-c", conf, "-e", filepath.Join(dir, "error.log"))
	p, err := n.StartCommand(cmd)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Stop(); err != nil {
			t.Error(err)
		}
	})
	Eventually(t, "nginx listens on "+n.Name, func() bool {
		select {
		case <-p.Done():
			t.Fatalf("nginx ended: %s", p.Log())
		default:
		}
		return len(TCP6(t, bed, n, "0A")) == 1
	})
}

// Get makes a request on a connection and returns the body of its answer.
func Get(t *testing.T, c net.Conn, path string) string {
	t.Helper()
	fmt.Fprintf(c, "GET %s HTTP/1.1\r\nHost: web\r\n\r\n", path)
	c.SetReadDeadline(time.Now().Add(Patience))
	answer, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		t.Fatalf("GET %s: %v", path, err)
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err != nil || answer.StatusCode != http.StatusOK {
		t.Fatalf("GET %s: %s, %v", path, answer.Status, err)
	}
	return strings.TrimSpace(string(body))
}
