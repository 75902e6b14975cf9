package testbed

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// TestQuotaHolds: two loops in a group have its share together, and no trace of the group
// is left by Close. A busy machine only gives less.
func TestQuotaHolds(t *testing.T) {
	b := up(t, Config{Servers: 1})
	q, err := b.Servers[0].Quota()
	if err != nil {
		t.Fatal(err)
	}
	const share = 0.2
	if err := q.Set(share, 10*time.Millisecond); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	for range 2 {
		if _, err := b.Servers[0].StartCommand(q.Command("sh", "-c", "while :; do :; done")); err != nil {
			t.Fatal(err)
		}
	}
	used := time.Duration(0)
	for time.Since(began) < time.Second || used == 0 {
		time.Sleep(10 * time.Millisecond)
		if used, err = q.Used(); err != nil {
			t.Fatal(err)
		}
	}
	const overrun = 50 * time.Millisecond // ticks of either CPU, and starting the shells
	if most := time.Duration(share*float64(time.Since(began))) + overrun; used > most {
		t.Errorf("the loops used %v, want at most %v", used, most)
	}
	folders := q.folders
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	for _, folder := range folders {
		if _, err := os.Stat(folder); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s is still there: %v", folder, err)
		}
	}
}

// TestQuotaFiles: what is written and read, in both versions of control groups.
func TestQuotaFiles(t *testing.T) {
	for _, c := range []struct {
		made    []string // beforehand
		want    map[string]string
		usage   string
		content string
	}{
		{
			[]string{"cgroup.controllers"},
			map[string]string{"g/cpu.max": "1500 10000", "cgroup.subtree_control": "+cpu"},
			"g/cpu.stat", "usage_usec 2500\nuser_usec 2000\n",
		},
		{
			[]string{"cpu/", "cpuacct/"},
			map[string]string{"cpu/g/cpu.cfs_quota_us": "1500", "cpu/g/cpu.cfs_period_us": "10000"},
			"cpuacct/g/cpuacct.usage", "2500000\n",
		},
	} {
		root := t.TempDir()
		for _, path := range c.made {
			var err error
			if filepath.Base(path)+"/" == path {
				err = os.Mkdir(filepath.Join(root, path), 0o755)
			} else {
				err = os.WriteFile(filepath.Join(root, path), nil, 0o644)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		q, err := newQuota(root, "g")
		if err != nil {
			t.Fatal(err)
		}
		if err := q.Set(0.15, 10*time.Millisecond); err != nil {
			t.Fatal(err)
		}
		for path, want := range c.want {
			if got, err := os.ReadFile(filepath.Join(root, path)); err != nil || string(got) != want {
				t.Errorf("%s has %q, want %q (%v)", path, got, want, err)
			}
		}
		if err := os.WriteFile(filepath.Join(root, c.usage), []byte(c.content), 0o644); err != nil {
			t.Fatal(err)
		}
		if used, err := q.Used(); err != nil || used != 2500*time.Microsecond {
			t.Errorf("%s: %v used, want 2.5ms (%v)", c.usage, used, err)
		}
	}
}
