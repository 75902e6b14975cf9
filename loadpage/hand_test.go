package loadpage

import (
	"context"
	"errors"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// shared is a page in memory, as the data plane's is.
func shared(t *testing.T) *os.File {
	t.Helper()
	fd, err := unix.MemfdCreate("page", unix.MFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	f := os.NewFile(uintptr(fd), "page")
	if err := f.Truncate(PageSize); err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt([]byte(PageMagic), 0); err != nil {
		t.Fatal(err)
	}
	return f
}

// hand hands a new page over, which the caller reads by another descriptor.
func hand(t *testing.T, path string) (h *Hand, page *os.File) {
	t.Helper()
	given := shared(t)
	fd, err := unix.FcntlInt(given.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	page = os.NewFile(uintptr(fd), "page")
	t.Cleanup(func() { page.Close() })
	if h, err = NewHand(path, Access{}); err != nil {
		t.Fatal(err)
	}
	if err := h.Give(given); err != nil {
		t.Fatal(err)
	}
	return h, page
}

// eventually waits until a page has a busy count.
func eventually(t *testing.T, label string, page *os.File, want uint32) {
	t.Helper()
	for late := time.Now().Add(20 * time.Second); ; time.Sleep(time.Millisecond) {
		busy, written, err := Word(page)
		if err != nil {
			t.Fatal(err)
		}
		if written > 0 && busy == want {
			return
		}
		if time.Now().After(late) {
			t.Fatalf("%s: busy %d, written at %v, want %d", label, busy, written, want)
		}
	}
}

// TestReport: a program reports on the page that it is handed, on that page while no agent is there,
// and on the next one as soon as another agent is, though the first has not let go of the path.
func TestReport(t *testing.T) {
	path := filepath.Join(t.TempDir(), "new", "web.sock")
	var busy atomic.Uint32
	ctx, cancel := context.WithCancel(t.Context())
	reported := make(chan error, 1)
	go func() { reported <- Report(ctx, path, busy.Load) }() // before there is an agent
	busy.Store(3)
	first, page := hand(t, path)
	eventually(t, "the first page", page, 3)
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Lstat(path); err == nil {
		t.Error("the socket is still there")
	}
	busy.Store(4)
	eventually(t, "without an agent", page, 4)
	second, next := hand(t, path)
	eventually(t, "the second page", next, 4)
	third, last := hand(t, path) // a reload: the second is closed afterwards
	busy.Store(5)
	if err := second.Close(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the third page", last, 5)
	cancel()
	if err := <-reported; err != nil {
		t.Error(err)
	}
	if err := third.Close(); err != nil {
		t.Error(err)
	}
	if left, err := os.ReadDir(filepath.Dir(path)); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

// TestHandAccess: the socket has the owner and the permissions of its programs, whatever the umask,
// and no program of another user gets the page.
func TestHandAccess(t *testing.T) {
	if socket := os.Getenv("PROFFER_TEST_SOCKET"); socket != "" { // the program below
		conn, page, err := Receive(socket)
		if err != nil {
			t.Fatal(err)
		}
		WritePage(page, 1, 1)
		conn.Close()
		return
	}
	dir, err := os.MkdirTemp("/tmp", "proffer-hand-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "web.sock")
	h, err := NewHand(path, Access{Group: "65534"})
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	if _, _, err := Receive(path); err == nil {
		t.Error("a page is handed over before there is one")
	}
	if err := h.Give(shared(t)); err != nil {
		t.Fatal(err)
	}
	info, err := os.Lstat(path)
	if err != nil || info.Mode() != fs.ModeSocket|0o660 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
	program, err := os.ReadFile(os.Args[0])
	if err != nil {
		t.Fatal(err)
	}
	self := filepath.Join(dir, "self") // where every user can run it
	if err := os.WriteFile(self, program, 0o755); err != nil {
		t.Fatal(err)
	}
	for group, want := range map[uint32]bool{65534: true, 65533: false} {
		cmd := exec.Command(self, "-test.run=^TestHandAccess$")
		cmd.Env = append(os.Environ(), "PROFFER_TEST_SOCKET="+path)
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: group}}
		cmd.Dir = dir
		if out, err := cmd.CombinedOutput(); (err == nil) != want {
			t.Errorf("group %d: %v\n%s", group, err, out)
		}
	}
}

// TestHandRefuses: a file at the path is left alone, and programs beyond the most are not kept.
func TestHandRefuses(t *testing.T) {
	path := filepath.Join(t.TempDir(), "web.sock")
	if err := os.WriteFile(path, []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	if h, err := NewHand(path, Access{}); err == nil {
		h.Close()
		t.Error("a file was replaced by a socket")
	}
	if text, err := os.ReadFile(path); err != nil || string(text) != "precious" {
		t.Errorf("the file is now %q, %v", text, err)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	h, _ := hand(t, path)
	defer h.Close()
	var conns []*net.UnixConn
	for i := range mostPrograms {
		conn, page, err := Receive(path)
		if err != nil {
			t.Fatalf("program %d: %v", i, err)
		}
		unix.Munmap(page)
		conns = append(conns, conn)
	}
	if conn, _, err := Receive(path); err == nil {
		conn.Close()
		t.Errorf("%d programs have the page", mostPrograms+1)
	}
	conns[0].Close()
	for late := time.Now().Add(20 * time.Second); ; time.Sleep(time.Millisecond) {
		conn, page, err := Receive(path)
		if err == nil {
			unix.Munmap(page)
			conns[0] = conn
			break
		}
		if time.Now().After(late) {
			t.Fatalf("a program has ended, and no other gets the page: %v", err)
		}
	}
	for _, conn := range conns {
		conn.Close()
	}
}

// TestHandInTheFolderOfAnApplication: while the application swaps the names in its folder, the agent
// makes its socket again and again, and no other file gets the socket's owner or permissions.
func TestHandInTheFolderOfAnApplication(t *testing.T) {
	const application = 65534
	own := filepath.Join(t.TempDir(), "own")
	precious := filepath.Join(filepath.Dir(own), "precious")
	if err := errors.Join(os.Mkdir(own, 0o755), os.WriteFile(precious, nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(own, "web.sock")
	var swaps, ended atomic.Int64
	var swapping sync.WaitGroup
	swapping.Go(func() {
		for ended.Load() == 0 {
			if os.Rename(path+made, path+".away") == nil {
				os.Symlink(precious, path+made)
				swaps.Add(1)
				os.Remove(path + made)
				os.Remove(path)
			}
		}
	})
	for late := time.Now().Add(20 * time.Second); swaps.Load() < 200; {
		h, err := NewHand(path, Access{Owner: strconv.Itoa(application), Mode: 0o666})
		if err == nil {
			if err := h.Give(shared(t)); err != nil {
				t.Log(err) // the application has taken the socket away
			}
			h.Close()
		}
		if time.Now().After(late) {
			t.Fatalf("%d swaps", swaps.Load())
		}
		var st unix.Stat_t
		if err := unix.Lstat(precious, &st); err != nil {
			t.Fatal(err)
		}
		if st.Mode&0o777 != 0o600 || st.Uid != 0 {
			t.Fatalf("after %d swaps another file has mode %04o and user %d", swaps.Load(), st.Mode&0o777, st.Uid)
		}
	}
	ended.Store(1)
	swapping.Wait()
}

// TestReportToAnImpostor: a program that reports at a socket of another program lives on, though that
// hands over a file that it cuts, a FIFO or nothing.
func TestReportToAnImpostor(t *testing.T) {
	path := filepath.Join(t.TempDir(), "web.sock")
	fifo := filepath.Join(filepath.Dir(path), "fifo")
	if err := unix.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	ctx, cancel := context.WithCancel(t.Context())
	reported := make(chan error, 1)
	go func() { reported <- Report(ctx, path, func() uint32 { return 3 }) }()
	give := func(page *os.File, cut int64) {
		t.Helper()
		l.SetDeadline(time.Now().Add(20 * time.Second))
		conn, err := l.AcceptUnix()
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		if page == nil {
			return
		}
		defer page.Close()
		if cut == 0 { // before it is mapped
			page.Truncate(0)
		}
		if _, _, err := conn.WriteMsgUnix([]byte{1}, unix.UnixRights(int(page.Fd())), nil); err != nil {
			t.Fatal(err)
		}
		if cut > 0 { // while it is written
			eventually(t, "an impostor's page", page, 3)
			page.Truncate(0)
			time.Sleep(3 * writeEvery)
		}
	}
	give(nil, 0)
	give(shared(t), 0)
	pipe, err := os.OpenFile(fifo, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	give(pipe, -1)
	give(shared(t), 1)
	give(shared(t), 1)
	cancel()
	if err := <-reported; err != nil {
		t.Error(err)
	}
}
