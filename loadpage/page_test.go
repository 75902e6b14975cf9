package loadpage

import (
	"encoding/binary"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// mapped opens the page as a program would that reports its load.
func mapped(t *testing.T, path string) []byte {
	t.Helper()
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	mem, err := unix.Mmap(int(f.Fd()), 0, PageSize, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Munmap(mem) })
	return mem
}

func open(t *testing.T, path string) *Page {
	t.Helper()
	p, err := OpenPage(path, Access{Mode: 0o660})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	return p
}

func wantPage(t *testing.T, p *Page, busy uint32, written time.Duration) {
	t.Helper()
	if b, w := p.Read(); b != busy || w != written {
		t.Errorf("read busy %d written at %d, want %d at %d", b, w, busy, written)
	}
}

func TestPageIsMadeWithItsFolder(t *testing.T) {
	path := filepath.Join(t.TempDir(), "new", "web.load")
	p := open(t, path)
	wantPage(t, p, 0, 0)
	data, err := os.ReadFile(path)
	if err != nil || len(data) != PageSize || string(data[:8]) != "PROFFER1" || strings.Trim(string(data[8:]), "\x00") != "" {
		t.Fatalf("%d bytes that begin with %q, %v", len(data), data[:min(24, len(data))], err)
	}
}

func TestWordOfAWriterIsRead(t *testing.T) {
	path := filepath.Join(t.TempDir(), "web.load")
	p := open(t, path)
	mem := mapped(t, path)
	for _, w := range []struct {
		busy uint32
		at   time.Duration
	}{{7, 1}, {0, 2}, {1<<32 - 1, 1<<63 - 1}} {
		WritePage(mem, w.busy, w.at)
		wantPage(t, p, w.busy, w.at)
	}
}

// TestLayout: the offsets are an interface to programs in any language.
func TestLayout(t *testing.T) {
	path := filepath.Join(t.TempDir(), "web.load")
	p := open(t, path)
	mem := mapped(t, path)
	binary.NativeEndian.PutUint64(mem[8:], 1234)
	binary.NativeEndian.PutUint32(mem[16:], 42)
	wantPage(t, p, 42, 1234)
	WritePage(mem, 43, 1235)
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if at, busy := binary.NativeEndian.Uint64(data[8:]), binary.NativeEndian.Uint32(data[16:]); at != 1235 || busy != 43 {
		t.Errorf("WritePage wrote busy %d at 16 and %d at 8", busy, at)
	}
	if string(data[:8]) != PageMagic || strings.Trim(string(data[20:]), "\x00") != "" {
		t.Error("WritePage wrote elsewhere too")
	}
}

// TestWordSurvivesTheAgent: an agent that starts again finds the last word.
func TestWordSurvivesTheAgent(t *testing.T) {
	path := filepath.Join(t.TempDir(), "web.load")
	first, err := OpenPage(path, Access{Mode: 0o660})
	if err != nil {
		t.Fatal(err)
	}
	mem := mapped(t, path)
	WritePage(mem, 5, 99)
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	second, third := open(t, path), open(t, path)
	wantPage(t, second, 5, 99)
	WritePage(mem, 6, 100)
	wantPage(t, second, 6, 100)
	wantPage(t, third, 6, 100)
}

// TestWordsAreWhole: a value that is read was written, and values never go back.
func TestWordsAreWhole(t *testing.T) {
	path := filepath.Join(t.TempDir(), "web.load")
	p := open(t, path)
	mem := mapped(t, path)
	const words = 5_000_000
	var group sync.WaitGroup
	defer group.Wait() // the page is unmapped then
	group.Go(func() {
		for i := range uint32(words) {
			WritePage(mem, i+1, time.Duration(i+1)<<32|time.Duration(i+1))
		}
	})
	last := time.Duration(0)
	for last>>32 < words {
		busy, written := p.Read()
		if written>>32 != written&(1<<32-1) || written < last {
			t.Fatalf("read instant %x after %x", written, last)
		}
		if time.Duration(busy) < written>>32 {
			t.Fatalf("instant %x came before its busy count: %d", written, busy)
		}
		last = written
	}
}

func TestWhatIsNoPageIsRefused(t *testing.T) {
	dir := t.TempDir()
	put := func(name, data string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(data), 0o644); err != nil {
			t.Fatal(err)
		}
		return path
	}
	good := put("good", PageMagic+strings.Repeat("\x00", PageSize-8))
	link, fifo := filepath.Join(dir, "link"), filepath.Join(dir, "fifo")
	if err := os.Symlink(good, link); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mkfifo(fifo, 0o644); err != nil {
		t.Fatal(err)
	}
	second := filepath.Join(dir, "second")
	if err := os.Link(put("another", ""), second); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		put("short", PageMagic):                                                                "8 bytes long, want 4096: not a load page",
		put("text", strings.Repeat("hello, world\n", 1000)):                                    `does not begin with "PROFFER1": not a load page`,
		put("zero", strings.Repeat("\x00", PageSize)):                                          `does not begin with "PROFFER1": not a load page`,
		put("later", strings.Replace(PageMagic, "1", "2", 1)+strings.Repeat("\x00", PageSize)): `does not begin with "PROFFER1"`,
		dir:                          "is a directory",
		link:                         "too many levels of symbolic links",
		fifo:                         "not a regular file",
		second:                       "a file with 2 names",
		filepath.Join(good, "below"): "not a directory",
		"/proc/proffer/web.load":     "no such file",
	} {
		before, _ := os.ReadFile(filepath.Join(dir, "text"))
		p, err := OpenPage(path, Access{Mode: 0o660})
		if err == nil {
			p.Close()
			t.Errorf("%s: no error", path)
			continue
		}
		if !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "load page "+path) {
			t.Errorf("%s:\ngot  %v\nwant … %s", path, err, want)
		}
		if after, _ := os.ReadFile(filepath.Join(dir, "text")); string(after) != string(before) {
			t.Errorf("%s: a file that is no page was changed", path)
		}
	}
}

// TestTruncatedPageDoesNotKill: a writer that opens the page with O_TRUNC, as
// many programs open a file to write it, must not end the agent by SIGBUS.
func TestTruncatedPageDoesNotKill(t *testing.T) {
	const env = "PROFFER_TRUNCATE"
	if path := os.Getenv(env); path != "" {
		p, err := OpenPage(path, Access{Mode: 0o660})
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Truncate(path, 0); err != nil {
			t.Fatal(err)
		}
		p.Read() // the word does not matter, coming back does
		return
	}
	cmd := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$")
	cmd.Env = append(os.Environ(), env+"="+filepath.Join(t.TempDir(), "web.load"))
	if out, err := cmd.CombinedOutput(); err != nil {
		line, _, _ := strings.Cut(string(out), "\n\n")
		t.Errorf("reading a truncated page ended the process: %v\n%s", err, line)
	}
}

// TestAccess: a page has the owner, the group and the permissions that are asked for, whatever
// the umask. Without a word about them a new page is the agent's, and one that is there stays.
func TestAccess(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Fatal("needs root, to give a file away")
	}
	defer unix.Umask(unix.Umask(0o077))
	path := filepath.Join(t.TempDir(), "web.load")
	for _, c := range []struct {
		access         Access
		uid, gid, mode uint32
	}{
		{Access{}, 0, 0, 0o660},
		{Access{"daemon", "65534", 0o620}, 1, 65534, 0o620},
		{Access{}, 1, 65534, 0o620},
		{Access{Group: "root"}, 1, 0, 0o620},
	} {
		p, err := OpenPage(path, c.access)
		if err != nil {
			t.Fatal(err)
		}
		p.Close()
		var st unix.Stat_t
		if err := unix.Stat(path, &st); err != nil {
			t.Fatal(err)
		}
		if st.Uid != c.uid || st.Gid != c.gid || st.Mode&0o777 != c.mode {
			t.Errorf("%+v: the page belongs to %d:%d with mode %04o", c.access, st.Uid, st.Gid, st.Mode&0o777)
		}
	}
	if _, err := OpenPage(path+"2", Access{Owner: "no-such-user"}); err == nil {
		t.Error("a page for a user that does not exist")
	}
	if p, err := OpenPage(path+"2", Access{Owner: "daemon"}); err != nil {
		t.Errorf("after a start that failed: %v", err)
	} else {
		p.Close()
	}
}

// TestAccessWithFewCapabilities: with the capabilities of the agent's unit a page is its group's,
// if the agent is in that group, and with CAP_CHOWN its owner's, at the next start, too.
func TestAccessWithFewCapabilities(t *testing.T) {
	if page := os.Getenv("PROFFER_TEST_PAGE"); page != "" { // the process below
		p, err := OpenPage(page, Access{Owner: os.Getenv("PROFFER_TEST_OWNER"), Group: os.Getenv("PROFFER_TEST_GROUP")})
		if err != nil {
			t.Fatal(err)
		}
		p.Close()
		return
	}
	for _, c := range []struct{ owner, group, capabilities string }{
		{"", "daemon", "-all"}, {"daemon", "", "-all,+chown"}, {"daemon", "daemon", "-all,+chown"},
	} {
		page := filepath.Join(t.TempDir(), "web.load")
		for _, start := range []string{"first", "next"} {
			cmd := exec.Command("setpriv", "--bounding-set="+c.capabilities, "--inh-caps=-all", "--groups=1", os.Args[0], "-test.run=^TestAccessWithFewCapabilities$")
			cmd.Env = append(os.Environ(), "PROFFER_TEST_PAGE="+page, "PROFFER_TEST_OWNER="+c.owner, "PROFFER_TEST_GROUP="+c.group)
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Errorf("owner %q, group %q, %s start: %v\n%s", c.owner, c.group, start, err, out)
			}
		}
	}
}
