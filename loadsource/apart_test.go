package loadsource

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode"

	"golang.org/x/sys/unix"

	"proffer/topo"
)

// wrapped are limits of a scoreboard with a product above 2^64, by so little that the length seems
// right.
var wrapped = []struct {
	size             uint64
	servers, threads int32
}{
	{54173528, 1244665385, 44109063}, {35519608, 126026695, 435630118}, // workers of 336 bytes
	{15949584, 359656698, 188565686}, {66075288, 401277415, 169007548}, // of 272
	{51520640, 102032474, 684821487}, {21970856, 476299697, 146701816}, // of 264
}

// sharedBy maps shared memory in this process, and returns a PID file of it.
func sharedBy(t *testing.T, size int) (memory []byte, pidFile string) {
	t.Helper()
	memory, err := unix.Mmap(-1, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_ANONYMOUS)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Munmap(memory) })
	return memory, write(t, folder(t), "pid", fmt.Sprint(os.Getpid()))
}

// TestWrappedLimits: sixteen bytes in the shared memory of a process make the reader ask for nothing.
func TestWrappedLimits(t *testing.T) {
	memory, pid := sharedBy(t, longestBoard)
	s := open(t, topo.Offering{Source: topo.Apache, From: pid})
	for _, c := range wrapped {
		putNative64(memory, c.size)
		putNative32(memory[aprServers:], uint32(c.servers))
		putNative32(memory[aprThreads:], uint32(c.threads))
		fails(t, s, "has no scoreboard of httpd 2.4 in its shared memory")
	}
	copy(memory, board(2, 3))
	reads(t, s, 6)
	putNative32(memory[aprServers:], 1<<31-1)
	fails(t, s, "has no scoreboard of httpd 2.4")
}

// TestLargeScoreboard: one of the longest that there may be is counted in parts.
func TestLargeScoreboard(t *testing.T) {
	memory, pid := sharedBy(t, longestBoard)
	b := board(1700, 100)
	copy(memory, b)
	l := layout{servers: 1700, threads: 100, worker: workerScores[0]}
	putNative32(memory[l.process(7):], 0) // a process that is gone, between others
	putNative32(memory[l.process(1699):], 0)
	reads(t, open(t, topo.Offering{Source: topo.Apache, From: pid}), 169_800)
}

// silent mounts a file system without a server that answers, as any user may; letGo ends it.
func silent(t *testing.T) (dir string, letGo func()) {
	t.Helper()
	server, err := os.OpenFile("/dev/fuse", os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	letGo = sync.OnceFunc(func() { server.Close() })
	t.Cleanup(letGo)
	dir = filepath.Join(folder(t), "silent")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("silent", dir, "fuse", 0, fmt.Sprintf("fd=%d,rootmode=40000,user_id=0,group_id=0", server.Fd())); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Unmount(dir, unix.MNT_DETACH) })
	return dir, letGo
}

// TestFileSystemThatHangs: a file system that does not answer costs a reading its time and its load;
// neither the next reading nor the end waits for it.
func TestFileSystemThatHangs(t *testing.T) {
	dir, letGo := silent(t)
	for _, o := range []topo.Offering{
		{Source: topo.Apache, From: dir + "/pid"}, {Page: dir + "/page"}, {Page: "unix:" + dir + "/socket"},
		{Source: topo.PHPFPM, From: "unix:" + dir + "/socket", Of: "/status"},
	} {
		s := open(t, o)
		if h, is := s.(*handedPage); is {
			if err := h.Give(pageInMemory(t)); err != nil {
				t.Fatal(err)
			}
		}
		for range 2 {
			if got, err := s.Read(t.Context(), now()); !errors.Is(err, errHangs) {
				t.Errorf("%+v: read %+v, %v", o, got, err)
			}
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if got, err := s.Read(ctx, now()); !errors.Is(err, context.Canceled) {
			t.Errorf("%+v, at the end: read %+v, %v", o, got, err)
		}
		closed := make(chan struct{})
		go func() {
			s.Close()
			close(closed)
		}()
		select {
		case <-closed:
		case <-time.After(patience):
			t.Errorf("%+v: the end waits for a reading that hangs", o)
		}
	}
	letGo()
}

type panics struct{ Source }

func (panics) Read(context.Context, time.Duration) (Reading, error) {
	return Reading{Busy: uint32(make([]byte, 1)[os.Getpid()])}, nil
}

func TestReadingThatPanics(t *testing.T) {
	for range 2 {
		if got, err := newApart(panics{}).Read(t.Context(), now()); err == nil || got.Busy != 0 || !strings.Contains(err.Error(), "index out of range") {
			t.Errorf("read %+v, %v", got, err)
		}
	}
}

// TestTroubleIsPrintable: no endpoint writes to a terminal through an error, nor at length.
func TestTroubleIsPrintable(t *testing.T) {
	escapes := "\x1b]0;own\x07\x1b[2J\u009b31m\u202e"
	long := strings.Repeat("x", 4000)
	tcp, socket := madman(t, func(c net.Conn) {
		defer c.Close()
		asked := make([]byte, 4096)
		n, _ := c.Read(asked)
		if strings.HasPrefix(string(asked[:n]), "GET") {
			fmt.Fprintf(c, "HTTP/1.1 500 %s%s\r\nContent-Length: 0\r\n\r\n", escapes, long)
			return
		}
		c.Write(cgiRecord(cgiRecord(nil, cgiStdout, []byte("Status: 404 "+escapes+long+"\r\n\r\n")), cgiEnd, make([]byte, 8)))
	})
	metrics := answers(t, "web "+escapes+long+"\n")
	for _, o := range []topo.Offering{
		{Source: topo.Nginx, From: "http://" + tcp}, {Source: topo.Envoy, From: "http://" + tcp, Of: "web"},
		{Source: topo.HAProxy, From: "http://" + tcp, Of: "web"}, {Source: topo.Prometheus, From: "http://" + tcp, Of: "web"},
		{Source: topo.PHPFPM, From: "unix:" + socket, Of: "/status"}, {Source: topo.Prometheus, From: metrics, Of: "web"},
	} {
		_, err := open(t, o).Read(t.Context(), now())
		if err == nil || strings.ContainsFunc(err.Error(), func(r rune) bool { return !unicode.IsPrint(r) }) || len([]rune(err.Error())) > longestTrouble+100 {
			t.Errorf("%s: %q", o.Source, err)
		}
		if o.From != metrics && !strings.Contains(err.Error(), `\x1b]0;own\x07`) {
			t.Errorf("%s: %q does not show the text", o.Source, err)
		}
	}
}

// TestPathsOfAMadman: a PID file, a page or a socket that is another kind of file costs this load, at
// once, until it is right.
func TestPathsOfAMadman(t *testing.T) {
	dir := folder(t)
	at := filepath.Join(dir, "it")
	kinds := map[string]func() error{
		"a FIFO":     func() error { return unix.Mkfifo(at, 0o666) },
		"a device":   func() error { return unix.Mknod(at, unix.S_IFCHR|0o666, int(unix.Mkdev(5, 0))) },
		"a folder":   func() error { return os.Mkdir(at, 0o755) },
		"a loop":     func() error { return os.Symlink(at, at) },
		"a link":     func() error { return errors.Join(os.Symlink("/proc/kmsg", at), os.Lchown(at, 65534, 65534)) },
		"no page":    func() error { return os.WriteFile(at, make([]byte, 8192), 0o600) },
		"a long one": func() error { return errors.Join(os.WriteFile(at, nil, 0o600), os.Truncate(at, 1<<40)) },
	}
	for name, make := range kinds {
		if err := make(); err != nil {
			t.Fatal(err)
		}
		for _, o := range []topo.Offering{
			{Source: topo.Apache, From: at}, {Page: at}, {Page: "unix:" + at},
			{Source: topo.PHPFPM, From: "unix:" + at, Of: "/status"}, {Source: topo.HAProxy, From: "unix:" + at, Of: "web"},
		} {
			began := time.Now()
			s := open(t, o)
			if h, is := s.(*handedPage); is {
				if err := h.Give(pageInMemory(t)); err != nil {
					t.Fatal(err)
				}
			}
			got, err := s.Read(t.Context(), now())
			if err == nil || errors.Is(err, errHangs) || time.Since(began) > patience {
				t.Errorf("%s, %+v: read %+v, %v, after %v", name, o, got, err, time.Since(began))
			}
		}
		page := open(t, topo.Offering{Page: at})
		if err := os.RemoveAll(at); err != nil {
			t.Fatal(err)
		}
		fails(t, page, "the page was never written") // now there is one
		if err := os.Remove(at); err != nil {
			t.Fatal(err)
		}
	}
}

// answers serves a text.
func answers(t *testing.T, text string) (address string) {
	return serveText(t, func(*http.Request) string { return text })
}

// pageInMemory is the data plane's.
func pageInMemory(t *testing.T) *os.File {
	t.Helper()
	fd, err := unix.MemfdCreate("page", unix.MFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	f := os.NewFile(uintptr(fd), "page")
	if err := f.Truncate(4096); err != nil {
		t.Fatal(err)
	}
	return f
}

// TestHandedPageInTheWay: another file at the path of a socket costs this load, until it is gone.
func TestHandedPageInTheWay(t *testing.T) {
	at := filepath.Join(folder(t), "web.sock")
	if err := os.Mkdir(at, 0o755); err != nil {
		t.Fatal(err)
	}
	s := open(t, topo.Offering{Page: "unix:" + at})
	if err := s.(*handedPage).Give(pageInMemory(t)); err != nil {
		t.Fatal(err)
	}
	fails(t, s, "is another file")
	if err := os.Remove(at); err != nil {
		t.Fatal(err)
	}
	fails(t, s, "the page was never written")
	up(t, "unix", at)
}

// TestBombs: answers that are short for their effect are errors, or numbers, without much memory.
func TestBombs(t *testing.T) {
	series := func(n int) string { return strings.Repeat("web 1\n", n) }
	for name, c := range map[string]struct {
		source topo.Source
		answer string
		want   string // of the error; none: it is read
	}{
		"series":            {topo.Prometheus, series(mostSeries + 1), "more than 10000 series"},
		"many series":       {topo.Prometheus, series(mostSeries), ""},
		"other metrics":     {topo.Prometheus, strings.Repeat("a{b=\"c\"} 1\n", 350_000) + "web 7\n", ""},
		"other nonsense":    {topo.Prometheus, "a{{{\nweb 7\n", ""},
		"types":             {topo.Prometheus, strings.Repeat("# TYPE web gauge\n", mostSeries+1), "more than 10000 series"},
		"a histogram":       {topo.Prometheus, "# TYPE web histogram\nweb_bucket{le=\"1\"} 1\n", "is no gauge but a HISTOGRAM"},
		"columns":           {topo.HAProxy, "# pxname" + strings.Repeat(",", 4_000_000) + "\n", "a row of more than 65536 bytes"},
		"columns of others": {topo.HAProxy, "# pxname,svname,scur,slim\n" + strings.Repeat(",", 4_000_000) + "\n", "a row of more than 65536 bytes"},
		"rows":              {topo.HAProxy, "# pxname,svname,scur,slim\n" + strings.Repeat("a,b\n", 1_000_000) + "web,BACKEND,7,\n", ""},
	} {
		s := open(t, topo.Offering{Source: c.source, From: answers(t, c.answer), Of: "web"})
		var got Reading
		var err error
		for late := time.Now().Add(patience); ; { // again, as a busy machine is late
			got, err = s.Read(t.Context(), now())
			if !errors.Is(err, errLate) && !errors.Is(err, errHangs) || time.Now().After(late) {
				break
			}
		}
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: read %+v, %v; want an error with %q", name, got, err, c.want)
		}
	}
}
