package daemon

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"proffer/history"
	"proffer/topo"
)

// histories are the versions of the pools before, as the plane has them.
func (m *machine) histories() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return versionsOf(m.applied.Services[0].History)
}

func versionsOf(history []topo.Version) string {
	var all []string
	for _, v := range history {
		all = append(all, fmt.Sprintf("%d:%d", v.Version, len(v.Servers)))
	}
	return strings.Join(all, " ")
}

// wantHistory demands versions and sizes of the pools before.
func (m *machine) wantHistory(want string) {
	m.t.Helper()
	if got := m.histories(); got != want {
		m.t.Errorf("the plane has the pools %q, want %q", got, want)
	}
}

const twoServers = "servers: [{name: s1, locator: 5f00:0:2:1::/64}, {name: s2, locator: 5f00:0:2:2::/64}]"

// steady is an LB with the weights of its configuration.
func steady(t *testing.T) *machine {
	m := newMachine(t, lbFile)
	m.weightless = true
	return m
}

// reloaded changes the file, has the daemon read it, and waits until it has.
func (m *machine) reloaded(old, new string) {
	m.t.Helper()
	m.change(old, new)
	m.hangup()
	m.logs("configuration reloaded")
}

// TestPoolsAreRecorded: a pool that another follows stays in the plane's history, through
// the daemon's end and a new start, without a word in the configuration.
func TestPoolsAreRecorded(t *testing.T) {
	m := steady(t)
	p := m.running(LB)
	m.wantHistory("")
	m.reloaded("    "+twoServers, "    version: 1\n    servers: [{name: s1, locator: 5f00:0:2:1::/64}, {name: s2, locator: 5f00:0:2:2::/64, weight: 0}]")
	m.wantHistory("0:2")
	p.end()

	next := steady(t)
	text, err := os.ReadFile(m.file)
	if err != nil {
		t.Fatal(err)
	}
	next.configure(strings.ReplaceAll(string(text), m.socket, next.socket))
	p = next.running(LB)
	next.wantHistory("0:2")
	p.end()
}

// TestLowerVersionRefused: the LB does not go back to a version below the recorded one; the
// error names the place and the way out. The record survives the daemon.
func TestLowerVersionRefused(t *testing.T) {
	m := steady(t)
	m.change("port: 80", "port: 80\n    version: 7")
	p := m.running(LB)
	m.change("version: 7", "version: 6")
	m.hangup()
	line := m.logs("configuration not reloaded")
	for _, part := range []string{m.file + ":10:14: services[0].version: 6 is below 7", m.pools(), "a version of 7 or more", "remove the record"} {
		if !strings.Contains(line, part) {
			t.Errorf("the log has %s, want %q", line, part)
		}
	}
	m.wantReloads(0, 1)
	p.end()
	if err := LB(t.Context(), m.file, m.host()); err == nil || !strings.Contains(err.Error(), ":10:14: services[0].version: 6 is below 7") {
		t.Errorf("a start with a lower version: %v", err)
	}
	if err := os.Remove(m.pools()); err != nil {
		t.Fatal(err)
	}
	m2 := steady(t)
	text, _ := os.ReadFile(m.file)
	m2.configure(strings.ReplaceAll(string(text), m.socket, m2.socket))
	m2.running(LB).end()
}

// TestCorruptRecord: it is moved aside and named, and the LB starts.
func TestCorruptRecord(t *testing.T) {
	for _, content := range []string{"", "{", `{"format": 2}`, `{"format": 1, "services": 7}`} {
		m := steady(t)
		if err := os.MkdirAll(filepath.Dir(m.pools()), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(m.pools(), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		p := m.start(LB)
		if line := m.logs("the record of earlier pools is lost"); !strings.Contains(line, m.pools()+".corrupt") {
			t.Errorf("%q: the log has %s", content, line)
		}
		if aside, err := os.ReadFile(m.pools() + ".corrupt"); err != nil || string(aside) != content {
			t.Errorf("%q: moved aside: %q, %v", content, aside, err)
		}
		m.logs("msg=ready")
		if s := m.status(); len(s.Problems) != 1 || !strings.Contains(s.Problems[0], m.pools()+".corrupt") {
			t.Errorf("%q: status has the problems %q", content, s.Problems)
		}
		p.end()
	}
}

// TestRecordUnwritable: without its record the LB neither starts nor changes pools.
func TestRecordUnwritable(t *testing.T) {
	m := steady(t)
	if err := os.WriteFile(filepath.Dir(m.pools()), nil, 0o600); err != nil { // a file where the folder shall be
		t.Fatal(err)
	}
	if err := LB(t.Context(), m.file, m.host()); err == nil || !strings.Contains(err.Error(), "the record of pools") || !strings.Contains(err.Error(), "`state`") {
		t.Errorf("start: %v", err)
	}
	m = steady(t)
	p := m.running(LB)
	if err := os.RemoveAll(filepath.Dir(m.pools())); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Dir(m.pools()), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	m.change("port: 80", "port: 80\n    version: 7")
	m.hangup()
	m.logs(`msg="configuration not reloaded, the old one stays" error="the pools stay as they are: write the record of pools`)
	m.wantReloads(0, 1)
	p.end()
}

// readOnly makes a folder read-only for root, too, until again is called, or the test ends.
func readOnly(t *testing.T, dir string) (again func()) {
	t.Helper()
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount(dir, dir, "", unix.MS_BIND, ""); err != nil {
		t.Fatal(err)
	}
	again = sync.OnceFunc(func() { unix.Unmount(dir, unix.MNT_DETACH) })
	t.Cleanup(again)
	if err := unix.Mount("", dir, "", unix.MS_REMOUNT|unix.MS_BIND|unix.MS_RDONLY, ""); err != nil {
		t.Fatal(err)
	}
	return again
}

// TestDiskThatTakesNothing: an LB starts and serves on a disk that is read-only, with its record or without. It
// refuses other pools and takes all other changes; log and status name it until the record can be written, and
// then it is.
func TestDiskThatTakesNothing(t *testing.T) {
	for _, recorded := range []bool{false, true} {
		m := steady(t)
		text, err := os.ReadFile(m.file)
		if err != nil {
			t.Fatal(err)
		}
		if recorded {
			first := steady(t)
			first.configure(strings.ReplaceAll(string(text), m.socket, first.socket))
			first.running(LB).end()
		}
		again := readOnly(t, filepath.Dir(m.pools()))
		p := m.start(LB)
		m.logs("this LB serves, but takes no other pools until it can record them")
		m.logs("msg=ready")
		const problem = "other pools are refused: write the record of pools"
		if got := m.status().Problems; len(got) != 1 || !strings.HasPrefix(got[0], problem) || !strings.Contains(got[0], "read-only file system") {
			t.Errorf("status has %q", got)
		}
		m.reloaded("dispatch: hunt", "dispatch: single")
		m.change("port: 80", "port: 80\n    version: 7")
		m.hangup()
		if line := m.logs("configuration not reloaded"); !strings.Contains(line, "the pools stay as they are: write the record of pools") {
			t.Errorf("a change of pools: %s", line)
		}
		m.clock.tick(t, keepEvery)
		again()
		m.clock.tick(t, keepEvery)
		m.logs("the pools are recorded again")
		m.clock.tick(t, keepEvery)
		if got := m.status(); len(got.Problems) != 1 || got.Problems[0] != got.NotReloaded {
			t.Errorf("status has %q, want the refused reload alone", got.Problems)
		}
		m.hangup()
		m.logs("configuration reloaded")
		if got := m.status().Problems; len(got) > 0 {
			t.Errorf("status has %q", got)
		}
		if record, err := history.Load(m.pools()); err != nil || record.Services()[0].Version != 7 {
			t.Errorf("recorded: %v", err)
		}
		p.end()
	}
}

// TestRecordOfAnotherLB: an LB of another network namespace, or of another farm, has the record of this path: it
// is named, its pools are not taken over and it stays as it is.
func TestRecordOfAnotherLB(t *testing.T) {
	m := steady(t)
	m.change("port: 80", "port: 80\n    version: 7")
	p := m.running(LB)
	text, err := os.ReadFile(m.file)
	if err != nil {
		t.Fatal(err)
	}
	was, err := os.ReadFile(m.pools())
	if err != nil {
		t.Fatal(err)
	}
	for _, label := range []string{"it runs", "it has ended"} {
		want := "an LB of this host that runs has it"
		other := steady(t)
		file := strings.NewReplacer(m.socket, other.socket, "version: 7", "version: 3").Replace(string(text))
		if label == "it has ended" {
			p.end()
			file = strings.Replace(file, "000102", "ff0102", 1)
			want = "and this is 5f00:0:1:1::/64 in farm"
		}
		other.configure(file)
		q := other.running(LB)
		if got := other.status().Problems; len(got) != 1 || !strings.Contains(got[0], "is another LB's") || !strings.Contains(got[0], want) {
			t.Errorf("%s: status has %q", label, got)
		}
		q.stop()
		if err := q.exits(); err != nil { // the first may still run
			t.Error(err)
		}
		if is, err := os.ReadFile(m.pools()); err != nil || string(is) != string(was) {
			t.Errorf("%s: the record is now %s, %v", label, is, err)
		}
	}
}

// TestRecordOfFailedChange: a configuration that was not applied is not in the record.
func TestRecordOfFailedChange(t *testing.T) {
	m := steady(t)
	p := m.running(LB)
	before, err := os.ReadFile(m.pools())
	if err != nil {
		t.Fatal(err)
	}
	m.fail("apply")
	m.change("port: 80", "port: 80\n    version: 7")
	m.hangup()
	m.logs("apply is broken")
	if after, err := os.ReadFile(m.pools()); err != nil || string(after) != string(before) {
		t.Errorf("the record after a change that failed: %s, %v", after, err)
	}
	p.end()
}

// TestRecordOfFailedStart: pools of a daemon that could not attach its programs were not served:
// their version stops no way back.
func TestRecordOfFailedStart(t *testing.T) {
	first := steady(t)
	text, err := os.ReadFile(first.file)
	if err != nil {
		t.Fatal(err)
	}
	run := func(version string, fails bool) error {
		m := steady(t)
		m.configure(strings.ReplaceAll(strings.Replace(string(text), "port: 80", "port: 80\n    version: "+version, 1), first.socket, m.socket))
		if fails {
			m.fail("attach")
			return m.start(LB).exits()
		}
		m.running(LB).end()
		return nil
	}
	for _, lower := range []string{"5", "6"} { // before any pool was served, and after
		if err := run("7", true); err == nil {
			t.Fatal("it started")
		}
		if err := run(lower, false); err != nil {
			t.Error(err)
		}
	}
}

// TestPoolsAreForgotten: a pool goes when it was followed for longer than its connections may be silent,
// unless flows of it are in the table.
func TestPoolsAreForgotten(t *testing.T) {
	m := steady(t)
	p := m.running(LB)
	m.reloaded("    "+twoServers, "    version: 1\n    "+strings.Replace(twoServers, "5f00:0:2:2::/64}", "5f00:0:2:2::/64, weight: 0}", 1))
	m.mu.Lock()
	m.needed = []bool{true}
	m.mu.Unlock()
	m.clock.set(2 * time.Hour)
	m.clock.tick(t, forgetEvery)
	m.wantHistory("0:2")
	m.clock.set(2*time.Hour + 5*time.Minute)
	m.clock.tick(t, forgetEvery)
	m.clock.tick(t, forgetEvery) // the one before is over
	m.wantHistory("0:2")
	m.mu.Lock()
	m.needed = []bool{false}
	m.mu.Unlock()
	m.clock.tick(t, forgetEvery)
	m.clock.tick(t, forgetEvery)
	m.wantHistory("")
	p.end()
}
