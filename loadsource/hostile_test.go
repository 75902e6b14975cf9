package loadsource

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"proffer/topo"
)

// serveText answers every request with a text.
func serveText(t *testing.T, text func(*http.Request) string) (address string) {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, text(r)) }))
	t.Cleanup(s.Close)
	return s.URL
}

// madman listens at both a TCP port and a socket, and does as it likes with each connection.
func madman(t *testing.T, does func(net.Conn)) (tcp, unix string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "s")
	serve := func(network, address string) string {
		l, err := net.Listen(network, address)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { l.Close() })
		go func() {
			for {
				conn, err := l.Accept()
				if err != nil {
					return
				}
				go func() {
					defer conn.Close()
					does(conn)
				}()
			}
		}()
		return l.Addr().String()
	}
	return serve("tcp", "127.0.0.1:0"), serve("unix", path)
}

// TestHostileEndpoints: however an endpoint behaves, it is an error within the time for an answer.
func TestHostileEndpoints(t *testing.T) {
	hang := func(c net.Conn) { io.Copy(io.Discard, c) }
	for name, m := range map[string]struct {
		does       func(net.Conn)
		http, bare string // the errors
	}{
		"hangs": {hang, "no answer within 250ms", "no answer within 250ms"},
		"trickles": {func(c net.Conn) {
			c.Read(make([]byte, 4096)) // an answer before the question is another error
			for head := "HTTP/1.1 200 OK\r\n\r\n"; ; head = "" {
				if _, err := io.WriteString(c, head+"# "); err != nil {
					return
				}
				time.Sleep(10 * time.Millisecond)
			}
		}, "no answer within 250ms", ""},
		"never ends": {func(c net.Conn) {
			c.Read(make([]byte, 4096))
			io.WriteString(c, "HTTP/1.1 200 OK\r\n\r\n")
			for line := bytes.Repeat([]byte("# x\n"), 1<<16); ; {
				if _, err := c.Write(line); err != nil {
					return
				}
			}
		}, "longer than 4 MiB", ""},
		"closes": {func(c net.Conn) { c.Read(make([]byte, 1)) }, "", ""},
		"goes elsewhere": {func(c net.Conn) {
			c.Read(make([]byte, 4096))
			io.WriteString(c, "HTTP/1.1 302 Found\r\nLocation: http://192.0.2.1/\r\nContent-Length: 0\r\n\r\n")
			hang(c)
		}, "answers 302 Found", ""},
		"a long header": {func(c net.Conn) {
			io.WriteString(c, "HTTP/1.1 200 OK\r\n")
			for {
				if _, err := io.WriteString(c, "X: "+strings.Repeat("x", 4096)+"\r\n"); err != nil {
					return
				}
			}
		}, "", ""},
		"endless FastCGI": {func(c net.Conn) {
			for record := cgiRecord(nil, cgiStdout, make([]byte, 1<<15)); ; {
				if _, err := c.Write(record); err != nil {
					return
				}
			}
		}, "", ""},
		"records without content": {func(c net.Conn) {
			for record := bytes.Repeat(cgiRecord(nil, cgiStderr, nil), 1000); ; {
				if _, err := c.Write(record); err != nil {
					return
				}
			}
		}, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tcp, unix := madman(t, m.does)
			for _, c := range []struct {
				o    topo.Offering
				want string
			}{
				{topo.Offering{Source: topo.PHPFPM, From: "unix:" + unix, Of: "/status"}, m.bare},
				{topo.Offering{Source: topo.PHPFPM, From: "tcp:" + tcp, Of: "/status"}, m.bare},
				{topo.Offering{Source: topo.Nginx, From: "http://" + tcp}, m.http},
				{topo.Offering{Source: topo.HAProxy, From: "unix:" + unix, Of: "web"}, m.bare},
				{topo.Offering{Source: topo.HAProxy, From: "http://" + tcp, Of: "web"}, m.http},
				{topo.Offering{Source: topo.Envoy, From: "http://" + tcp, Of: "web"}, m.http},
				{topo.Offering{Source: topo.Prometheus, From: "http://" + tcp, Of: "x"}, m.http},
			} {
				s := open(t, c.o)
				for late := time.Now().Add(patience); ; { // again, as a busy machine has no time for the endpoint
					began := time.Now()
					got, err := s.Read(t.Context(), now())
					if took := time.Since(began); took > Within+patience/4 {
						t.Errorf("%s took %v", c.o.Source, took)
					}
					if err != nil && strings.Contains(err.Error(), c.want) {
						break
					}
					if err == nil || time.Now().After(late) {
						t.Errorf("%s read %+v, %v; want an error with %q", c.o.Source, got, err, c.want)
						break
					}
				}
			}
		})
	}
}

// TestAbsurdCounts: a count that cannot be is an error, and is named.
func TestAbsurdCounts(t *testing.T) {
	for _, n := range []string{"-1", "16777217", "99999999999999999999", "NaN", "+Inf", "1e99", "x", ""} {
		for source, answer := range map[topo.Source]string{
			topo.HAProxy:    "# pxname,svname,scur,slim\nweb,BACKEND," + n + ",\n",
			topo.Envoy:      "http.web.downstream_rq_active: " + n + "\n",
			topo.Prometheus: "web " + n + "\n",
			topo.Nginx:      "Active connections: 1 \nserver accepts handled requests\n 1 1 1 \nReading: " + n + " Writing: 1 Waiting: 0 \n",
		} {
			s := open(t, topo.Offering{Source: source, From: serveText(t, func(*http.Request) string { return answer }), Of: "web"})
			if got, err := s.Read(t.Context(), now()); err == nil {
				t.Errorf("%s, %q requests: read %+v", source, n, got)
			}
		}
	}
	for _, text := range []string{`{"active processes":-1,"listen queue":0}`, `{"active processes":1,"listen queue":99999999}`, `{"active processes":1}`, `[]`, `{"active processes":1e99,"listen queue":0}`} {
		if got, err := new(phpFPM).parse([]byte(text)); err == nil {
			t.Errorf("php-fpm, %s: read %+v", text, got)
		}
	}
}

// TestPageOfAMadman: a page that is no page any more, or has a number or a time that cannot be, is
// no load, and is named.
func TestPageOfAMadman(t *testing.T) {
	path := filepath.Join(t.TempDir(), "web.load")
	s := open(t, topo.Offering{Page: path})
	const at = 100 * time.Second
	write := func(busy uint32, written time.Duration) {
		t.Helper()
		b := make([]byte, 20)
		copy(b, "PROFFER1")
		putNative64(b[8:], uint64(written))
		putNative32(b[16:], busy)
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		busy    uint32
		written time.Duration
		want    string
	}{
		{3, at, ""},
		{3, at - Stale, ""},
		{3, at + Stale, ""},
		{MostBusy, at, ""},
		{MostBusy + 1, at, "16777217 requests in progress cannot be"},
		{1<<32 - 1, at, "4294967295 requests in progress cannot be"},
		{3, at - Stale - 1, "the page is not written any more"},
		{3, at + Stale + 1, "written in the future"},
		{3, -1, "written in the future"},
		{3, 0, "never written"},
	} {
		write(c.busy, c.written)
		got, err := s.Read(t.Context(), at)
		if text := fmt.Sprint(err); (err == nil) != (c.want == "") || !strings.Contains(text, c.want) && err != nil {
			t.Errorf("%+v: read %+v, %v", c, got, err)
		}
	}
	if err := os.Truncate(path, 0); err != nil {
		t.Fatal(err)
	}
	if got, err := s.Read(t.Context(), at); err == nil {
		t.Errorf("a page that was truncated: %+v", got)
	}
}

// TestWrongScoreboard: memory that is no scoreboard, or one of another layout, is named.
func TestWrongScoreboard(t *testing.T) {
	dir := t.TempDir()
	file := func(text string) string { return write(t, dir, "pid", text) }
	for pid, want := range map[string]string{
		"":                        "has no process number",
		"-1\n":                    "has no process number",
		strings.Repeat("9", 30):   "has no process number",
		strings.Repeat("9", 1000): "longer than 32 bytes",
		"4294967297\n":            "has no process number",
		"2147483647\n":            "httpd (process 2147483647) does not run",
		fmt.Sprint(os.Getpid()):   "has no scoreboard of httpd 2.4 in its shared memory (",
	} {
		fails(t, open(t, topo.Offering{Source: topo.Apache, From: file(pid)}), want)
	}
	fails(t, open(t, topo.Offering{Source: topo.Apache, From: filepath.Join(dir, "none")}), "httpd's PID file: open")
	for name, change := range map[string]func([]byte){
		"another length":    func(b []byte) { b[0]++ },
		"no processes":      func(b []byte) { putNative32(b[8:], 0) },
		"many processes":    func(b []byte) { putNative32(b[8:], 1<<31-1) },
		"negative threads":  func(b []byte) { putNative32(b[12:], 1<<32-1) },
		"a status of 11":    func(b []byte) { b[boardsHeader+2*processScore+workerStatus] = 11 },
		"another's number":  func(b []byte) { putNative32(b[boardsHeader+2*processScore+workerNumber:], 1) },
		"memory that ended": func(b []byte) { putNative64(b, 0) },
	} {
		b := board(2, 3)
		s := &scoreboard{mem: memory{bytes.NewReader(b)}, layout: layout{servers: 2, threads: 3, worker: 336}}
		if got, err := s.count(t.Context()); err != nil || got.Busy != 6 || got.Workers != 6 {
			t.Fatalf("a whole scoreboard: %+v, %v", got, err)
		}
		change(b)
		if got, err := s.count(t.Context()); err == nil {
			t.Errorf("%s: read %+v", name, got)
		}
	}
}

// TestGracefulWorkers: of workers with the status of a graceful restart those count that began a
// request after the last; where no worker has times, all.
func TestGracefulWorkers(t *testing.T) {
	b := board(1, 4)
	l := layout{servers: 1, threads: 4, worker: workerScores[0]}
	row := func(i int64) []byte { return b[l.row(i):] }
	for i := range l.threads {
		row(i)[workerStatus] = workerGraceful
	}
	s := &scoreboard{mem: memory{bytes.NewReader(b)}, layout: l}
	if got, err := s.count(t.Context()); err != nil || got.Busy != 4 {
		t.Errorf("without times: %+v, %v; want 4", got, err)
	}
	for i, times := range [][2]uint64{{7, 0}, {7, 8}, {9, 8}} { // the fourth had no request
		putNative64(row(int64(i))[workerBegan:], times[0])
		putNative64(row(int64(i))[workerAnswered:], times[1])
	}
	if got, err := s.count(t.Context()); err != nil || got.Busy != 2 || got.Workers != 4 {
		t.Errorf("with times: %+v, %v; want 2 of 4", got, err)
	}
}
