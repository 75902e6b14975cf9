package load

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"proffer/e2e/kit"
	"proffer/lab/farmrun"
	"proffer/lab/testbed"
	"proffer/loadpage"
	"proffer/loadsource"
	"proffer/topo"
)

// writer is the program at each server that reports its load, several times a
// second as it must.
type writer struct {
	mu     sync.Mutex
	pages  [][]byte
	busy   []uint32
	silent bool
}

// startWriter maps the pages that the agents made. It reports that nothing is busy.
func startWriter(t *testing.T, bed *testbed.Bed) *writer {
	t.Helper()
	w := &writer{busy: make([]uint32, len(bed.Servers))}
	for _, n := range bed.Servers {
		f, err := os.OpenFile(pageOf(bed)(n.Name), os.O_RDWR, 0)
		if err != nil {
			t.Fatalf("the agent made no page: %v", err)
		}
		defer f.Close()
		mem, err := unix.Mmap(int(f.Fd()), 0, loadpage.PageSize, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
		if err != nil {
			t.Fatal(err)
		}
		w.pages = append(w.pages, mem)
	}
	ended := make(chan struct{})
	quit := make(chan struct{})
	go func() {
		defer close(ended)
		w.run(quit)
	}()
	t.Cleanup(func() {
		close(quit)
		<-ended
		for _, mem := range w.pages {
			unix.Munmap(mem)
		}
	})
	return w
}

func (w *writer) run(quit <-chan struct{}) {
	for {
		select {
		case <-quit:
			return
		case <-time.After(20 * time.Millisecond):
			w.write(0)
		}
	}
}

// write reports on every page the busy count at an instant of the past.
func (w *writer) write(age time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	var now unix.Timespec
	if w.silent && age == 0 || unix.ClockGettime(unix.CLOCK_MONOTONIC, &now) != nil {
		return
	}
	for i, mem := range w.pages {
		loadpage.WritePage(mem, w.busy[i], time.Duration(now.Nano())-age)
	}
}

// say makes busy counts what is reported from now on, until hush.
func (w *writer) say(busy ...uint32) {
	w.mu.Lock()
	copy(w.busy, busy)
	w.silent = false
	w.mu.Unlock()
	w.write(0)
}

// hush makes the program silent since two seconds.
func (w *writer) hush() {
	w.mu.Lock()
	w.silent = true
	w.mu.Unlock()
	w.write(2 * time.Second)
}

func pageOf(bed *testbed.Bed) func(string) string {
	return func(server string) string { return filepath.Join(bed.Dir, server+".load") }
}

// decisionsOn makes connections and returns the decisions they met, by counter,
// without the zeros.
func decisionsOn(t *testing.T, farm *farmrun.Farm, conns int) map[string]int {
	t.Helper()
	since := decisionsFrom(t, farm)
	for range conns {
		kit.Dial(t, farm.Bed).Close()
	}
	return since()
}

// decisionsFrom counts from now on.
func decisionsFrom(t *testing.T, farm *farmrun.Farm) (since func() map[string]int) {
	t.Helper()
	names := []string{"accept_avail", "accept_force", "pass_on_busy", "pass_on_unknown_load"}
	met := map[string]int{}
	for _, name := range names {
		met[name] = -int(kit.Counter(t, farm, name, farm.Bed.Servers...))
	}
	return func() map[string]int {
		t.Helper()
		for _, name := range names {
			met[name] += int(kit.Counter(t, farm, name, farm.Bed.Servers...))
			if met[name] == 0 {
				delete(met, name)
			}
		}
		return met
	}
}

// TestPageDrivesAcceptance: the program's report counts, not what the kernel
// sees; a program that is silent for a second takes what it must.
func TestPageDrivesAcceptance(t *testing.T) {
	const conns = 12
	bed := kit.Up(t, testbed.Config{Servers: 2})
	kit.Obedient(t, bed)
	s := kit.Settings(t, "hunt:static:4")
	s.Measure, s.Page = topo.Page, pageOf(bed)
	farm := kit.Start(t, bed, s)
	all := func(counters ...string) string {
		want := map[string]int{}
		for _, c := range counters {
			want[c] = conns
		}
		return fmt.Sprint(want)
	}
	// The agent copies the pages every millisecond or so.
	meets := func(want string) {
		t.Helper()
		kit.EventuallyIs(t, "decisions", want, func() string { return fmt.Sprint(decisionsOn(t, farm, conns)) })
	}
	says := func(want string) {
		t.Helper()
		for _, n := range bed.Servers {
			kit.Eventually(t, "the status of "+n.Name+" says "+want, func() bool {
				return strings.Contains(kit.In(t, n, kit.Proffer, "status", "--control", kit.Control(bed, n)), want)
			})
		}
	}

	says(", page: the page was never written")
	meets(all("pass_on_unknown_load", "accept_force"))
	w := startWriter(t, bed)
	for _, step := range []struct {
		busy uint32
		want string
	}{
		{0, all("accept_avail")},
		{3, all("accept_avail")},
		{4, all("pass_on_busy", "accept_force")},
		{loadsource.MostBusy, all("pass_on_busy", "accept_force")},
		{3, all("accept_avail")},
	} {
		w.say(step.busy, step.busy)
		meets(step.want)
		says(fmt.Sprintf(", page busy %d", step.busy))
	}
	w.hush()
	meets(all("pass_on_unknown_load", "accept_force"))
	says(" s old: the page is not written any more")
	w.say(1<<32-1, 1<<32-1)
	meets(all("pass_on_unknown_load", "accept_force"))
	says(": 4294967295 requests in progress cannot be")
	w.say(0, 0)
	meets(all("accept_avail"))
	says(", page busy 0")
}

// TestPagesAreApart: each server's load is that of its own page.
func TestPagesAreApart(t *testing.T) {
	bed := kit.Up(t, testbed.Config{Servers: 2})
	kit.Obedient(t, bed)
	s := kit.Settings(t, "hunt:static:4")
	s.Measure, s.Page = topo.Page, pageOf(bed)
	kit.Start(t, bed, s)
	w := startWriter(t, bed)
	for free, busy := range [][]uint32{{0, 4}, {4, 0}} {
		w.say(busy...)
		kit.Eventually(t, bed.Servers[free].Name+" takes all", func() bool {
			for range 12 {
				if kit.Ask(t, kit.Dial(t, bed)) != bed.Servers[free].Name {
					return false
				}
			}
			return true
		})
	}
}

// TestFileThatIsNoPage: the agent starts, and log and status name the file, which stays as it is, until
// there is a page.
func TestFileThatIsNoPage(t *testing.T) {
	bed := kit.Up(t, testbed.Config{Servers: 1})
	s := kit.Settings(t, "hunt:static:4")
	s.Measure, s.Page = topo.Page, pageOf(bed)
	path := s.Page("s1")
	put := func(text string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	text := strings.Repeat("busy: 3\n", 4096)
	put(text)
	farm := kit.Start(t, bed, s)
	trouble := func() string { return kit.LoadAt(t, farm, bed.Servers[0]).Word.Trouble }
	named := func(want string) {
		t.Helper()
		kit.Eventually(t, "status names the file: "+want, func() bool {
			return strings.Contains(trouble(), "load page "+path) && strings.Contains(trouble(), want)
		})
	}
	const noMagic = `does not begin with "PROFFER1": not a load page`
	named(noMagic)
	kit.Eventually(t, "the log names it", func() bool {
		return strings.Contains(farm.Daemon(bed.Servers[0]).Log(), "not a load page")
	})
	if data, err := os.ReadFile(path); err != nil || string(data) != text {
		t.Errorf("the file was changed: %v", err)
	}
	put("busy: 3\n")
	named("8 bytes long, want 4096: not a load page")
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	kit.Eventually(t, "there is a page", func() bool { return trouble() == "the page was never written" })
}

// TestTruncatedPage: a writer that opens its page with O_TRUNC must not take
// the agent, and with it the server, down.
func TestTruncatedPage(t *testing.T) {
	bed := kit.Up(t, testbed.Config{Servers: 1})
	kit.Obedient(t, bed)
	s := kit.Settings(t, "hunt:static:4")
	s.Measure, s.Page = topo.Page, pageOf(bed)
	farm := kit.Start(t, bed, s)
	if err := os.Truncate(s.Page("s1"), 0); err != nil {
		t.Fatal(err)
	}
	agent := farm.Daemon(bed.Servers[0])
	select {
	case <-agent.Done():
		line, _, _ := strings.Cut(agent.Log(), "\n\ngoroutine")
		t.Fatalf("the agent died of a truncated page: %s", line)
	case <-time.After(time.Second): // a thousand reads
	}
	kit.Ask(t, kit.Dial(t, bed))
}
