package e2e

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"proffer/lab/farmrun"
	"proffer/lab/testbed"
	"proffer/topo"
)

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

// nginx runs one on a server's VIP; /held is answered when the test lets go.
func nginx(t *testing.T, bed *testbed.Bed, n *testbed.Node, let <-chan struct{}) {
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
	cmd := exec.Command(program(t, "nginx"), "-p", dir, "-c", conf, "-e", filepath.Join(dir, "error.log"))
	p, err := n.StartCommand(cmd)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Stop(); err != nil {
			t.Error(err)
		}
	})
	eventually(t, "nginx listens on "+n.Name, func() bool {
		select {
		case <-p.Done():
			t.Fatalf("nginx ended: %s", p.Log())
		default:
		}
		return len(tcp6(t, bed, n, "0A")) == 1
	})
}

// get makes a request on a connection and returns the body of its answer.
func get(t *testing.T, c net.Conn, path string) string {
	t.Helper()
	fmt.Fprintf(c, "GET %s HTTP/1.1\r\nHost: web\r\n\r\n", path)
	c.SetReadDeadline(time.Now().Add(patience))
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

// requests makes connections one after another, a request on each, and returns
// each server's answers and the agents' decisions.
func requests(t *testing.T, farm *farmrun.Farm, n int) (share map[string]int, d decisions) {
	t.Helper()
	share = map[string]int{}
	before := decided(t, farm)
	for range n {
		c := dial(t, farm.Bed)
		share[get(t, c, "/")]++
		c.Close()
	}
	return share, decided(t, farm).since(before)
}

// TestIdleConnections: 200 idle keep-alive connections a server, as browsers
// leave them, are no load: hunting does with them what it does without.
func TestIdleConnections(t *testing.T) {
	const idle, probes = 200, 200
	bed := up(t, testbed.Config{Servers: 4})
	let := make(chan struct{})
	for _, n := range bed.Servers {
		nginx(t, bed, n, let)
	}
	farm := start(t, bed, settings(t, "hunt:static:4"))
	asFree := func(when string) {
		t.Helper()
		share, d := requests(t, farm, probes)
		t.Logf("%s: answered %v, first %v, forced %v, passed on %v", when, share, d.avail, d.force, d.busy)
		if sum(d.avail) != probes || sum(d.busy)+sum(d.force) != 0 {
			t.Errorf("%s: %d of %d taken by the first candidate, %d passed on, %d forced", when, sum(d.avail), probes, sum(d.busy), sum(d.force))
		}
		for _, n := range bed.Servers { // binomial: mean 50, standard deviation 6.1
			if share[n.Name] < probes/4-35 || share[n.Name] > probes/4+35 {
				t.Errorf("%s: %s answered %d of %d", when, n.Name, share[n.Name], probes)
			}
		}
	}
	asFree("without idle connections")
	open := 0
	for ; !eachHas(t, bed, idle); open++ {
		c := dial(t, bed)
		if open%2 == 0 { // half of them have had an answer, half have asked nothing yet
			get(t, c, "/")
		}
	}
	t.Logf("%d idle connections", open)
	eventuallyIs(t, "requests in progress", 0, func() uint32 { return loadOfAll(t, farm).Asking })
	asFree("with idle connections")
	if !eachHas(t, bed, idle) {
		t.Error("the idle connections did not last")
	}

	t.Run("requests in progress", func(t *testing.T) {
		made := uint32(0)
		wantStatic(t, farm, 4, 24, func() {
			fmt.Fprint(dial(t, bed), "GET /held HTTP/1.1\r\nHost: web\r\n\r\n")
			made++
			eventuallyIs(t, "requests in progress", made, func() uint32 { return loadOfAll(t, farm).Asking })
		}, func(i int) uint64 { return uint64(loadAt(t, farm, bed.Servers[i]).Asking) })
		close(let)
		eventuallyIs(t, "requests in progress", 0, func() uint32 { return loadOfAll(t, farm).Asking })
	})

	t.Run("counter-example", func(t *testing.T) { // the same connections by the signal that counts them
		if err := farm.Stop(); err != nil {
			t.Fatal(err)
		}
		s := settings(t, "hunt:static:4")
		s.Measure = topo.Sockets
		farm := start(t, bed, s)
		if _, d := requests(t, farm, 50); sum(d.avail) != 0 || sum(d.busy) != 50 || sum(d.force) != 50 {
			t.Errorf("load: sockets let %v take, %v pass on", d.avail, d.busy)
		}
	})
}

// eachHas reports whether every server has so many established connections.
func eachHas(t *testing.T, bed *testbed.Bed, n int) bool {
	t.Helper()
	for _, s := range bed.Servers {
		if len(tcp6(t, bed, s, "01")) < n {
			return false
		}
	}
	return true
}
