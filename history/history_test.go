package history

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"golang.org/x/sys/unix"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"proffer/topo"
)

var (
	web = topo.VIP{Addr: netip.MustParseAddr("2001:db8:f::1"), Port: 80}
	dns = topo.VIP{Addr: netip.MustParseAddr("192.0.2.53"), Port: 53, Protocol: topo.UDP}
)

func pool(weights ...int) (servers []topo.Server) {
	for i, w := range weights {
		locator := netip.MustParsePrefix(fmt.Sprintf("5f00:0:2:%x::/64", i+1))
		servers = append(servers, topo.Server{Name: fmt.Sprint("s", i+1), Locator: locator, Weight: w})
	}
	return servers
}

func serving(version int, weights ...int) *topo.LB {
	return &topo.LB{Services: []topo.Service{
		{VIP: web, Version: version, Servers: pool(weights...)}, {VIP: dns, Servers: pool(1)},
	}}
}

func at(minutes int) Moment {
	return Moment{time.Date(2026, 5, 1, 12, minutes, 0, 0, time.UTC), time.Duration(minutes) * time.Minute}
}

func keep(topo.VIP, topo.Version, time.Duration) bool { return false }

// write is that of an LB that ends with it.
func write(r *Record, path string) error {
	s, _, err := Open(path, "", at(0))
	if s == nil {
		return err
	}
	return errors.Join(s.Write(r), s.Close())
}

// versions are the history of the first service after Complete.
func versions(r *Record, cfg *topo.LB) (all []int) {
	for _, v := range r.Complete(cfg).Services[0].History {
		all = append(all, v.Version)
	}
	return all
}

// TestRecord: a pool that another follows is past, the newest first; a configuration again
// adds nothing; equal versions of different pools are both kept. A number alone makes no pool.
func TestRecord(t *testing.T) {
	r := (&Record{}).Next(serving(1, 1, 1), at(0), keep)
	if again := r.Next(serving(1, 1, 1), at(1), keep); !again.Equal(r) {
		t.Error("the same configuration changed the record")
	}
	r = r.Next(serving(1, 1, 0), at(2), keep)
	r = r.Next(serving(4, 1, 0, 1), at(3), keep)
	shared := serving(4, 1, 0, 1)
	shared.Services[0].History = []topo.Version{{Version: 3, Servers: pool(1)}, {Version: 1, Servers: pool(1, 0)}}
	if got := versions(r, shared); !reflect.DeepEqual(got, []int{3, 1, 1}) {
		t.Errorf("history %v, want the file's 3, and both pools of version 1 once", got)
	}
	if n, known := r.Newest(web); n != 4 || !known || r.Past(web) != 2 || r.Past(dns) != 0 {
		t.Errorf("newest %d, %d and %d before", n, r.Past(web), r.Past(dns))
	}
	r = r.Next(serving(4, 1, 0, 1), at(9), func(vip topo.VIP, v topo.Version, age time.Duration) bool {
		return vip == web && age > 6*time.Minute
	})
	if got := versions(r, serving(4, 1, 0, 1)); !reflect.DeepEqual(got, []int{1}) {
		t.Errorf("history %v after the oldest pool is over", got)
	}
	before := r.Past(web)
	r = r.Next(serving(5, 1, 0, 1), at(9), keep)
	if n, _ := r.Newest(web); n != 5 || r.Past(web) != before {
		t.Errorf("a number alone: newest %d, %d pools before, want %d", n, r.Past(web), before)
	}
	for v := range 100 {
		r = r.Next(serving(6+v, 1, v%2), at(10), keep)
	}
	if r.Past(web) != Most {
		t.Errorf("%d pools, want %d at most", r.Past(web), Most)
	}
}

// TestFile: the record survives the disk, and ages while no daemon runs; a clock that was set
// back makes no pool older.
func TestFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a", "b", "lb.json")
	r, err := Read(path, at(0))
	if err != nil {
		t.Fatal(err)
	}
	r = r.Next(serving(7, 1, 1), at(0), keep).Next(serving(8, 1, 0), at(1), keep)
	for range 2 {
		if err := write(r, path); err != nil {
			t.Fatal(err)
		}
	}
	if files, err := os.ReadDir(filepath.Dir(path)); err != nil || len(files) != 1 {
		t.Errorf("beside the record: %v, %v", files, err)
	}
	for restarted, want := range map[int]time.Duration{30: 29 * time.Minute, -60: 0} {
		later := Moment{at(restarted).Wall, 5 * time.Second} // of another boot
		got, err := Read(path, later)
		if err != nil || !got.Equal(r) {
			t.Fatalf("%v, %+v, want %+v", err, got, r)
		}
		got.Next(serving(8, 1, 0), later, func(_ topo.VIP, v topo.Version, age time.Duration) bool {
			if v.Version != 7 || age != want {
				t.Errorf("version %d is over since %v, want %v", v.Version, age, want)
			}
			return false
		})
	}
}

// TestCorrupt: a file that is no record is moved aside, each time under a new name, and named;
// one that cannot be read is an error with advice.
func TestCorrupt(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lb.json")
	for i, want := range []string{path + ".corrupt", path + ".corrupt-2"} {
		content := fmt.Sprintf(`{"format": 1, "services": [{"vip": "2001:db8::%d"`, i)
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		r, err := Read(path, at(0))
		var corrupt *Corrupt
		if !errors.As(err, &corrupt) || corrupt.Moved != want || r == nil {
			t.Fatalf("%v, %v", r, err)
		}
		if aside, err := os.ReadFile(want); err != nil || string(aside) != content {
			t.Errorf("moved aside: %q, %v", aside, err)
		}
		if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("the corrupt file still stands there: %v", err)
		}
	}
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	readOnly(t, filepath.Dir(path))
	var corrupt *Corrupt
	if s, r, err := Open(path, "", at(0)); !errors.As(err, &corrupt) || !errors.Is(corrupt.Stays, unix.EROFS) || s == nil || r == nil {
		t.Errorf("on a disk that is read-only: %v", err)
	}
	if _, err := Read(t.TempDir(), at(0)); err == nil {
		t.Error("a folder was read as a record")
	}
}

// TestDamage: a record that differs by any byte from the one that was written is no record: no change
// gives another pool. A record of a version that wrote no checksum is read.
func TestDamage(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lb.json")
	r := (&Record{}).Next(serving(7, 1, 1), at(0), keep).Next(serving(8, 1, 0), at(1), keep)
	if err := write(r, path); err != nil {
		t.Fatal(err)
	}
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for i := range whole {
		for _, b := range []byte{whole[i] ^ 1, whole[i] ^ 0x20, '0', '1', '9', ' ', '\n', '}', 0} {
			damaged := slices.Clone(whole)
			if damaged[i] = b; b == whole[i] {
				continue
			}
			if _, err := parse(damaged, at(1)); err == nil {
				t.Errorf("byte %d, %q, became %q: no error", i, whole[i], b)
			}
		}
		if got, err := parse(whole[:i], at(1)); err == nil && !got.Equal(r) {
			t.Errorf("cut after %d bytes: another record", i)
		}
	}
	older, _, _ := bytes.Cut(whole, []byte("\n{\"sha256\""))
	for _, text := range [][]byte{older, append(older, '\n')} {
		if got, err := parse(text, at(1)); err != nil || !got.Equal(r) {
			t.Errorf("without a checksum: %v", err)
		}
	}
}

// TestValues: a record without a checksum has values that an LB can have served.
func TestValues(t *testing.T) {
	for _, c := range []struct {
		change func(*fileJSON)
		want   string
	}{
		{func(f *fileJSON) { f.Services[0].Protocol = 7 }, "has protocol 7, want 6 or 17"},
		{func(f *fileJSON) { f.Services[0].Port = 0 }, "port 0"},
		{func(f *fileJSON) { f.Services[0].VIP = netip.Addr{} }, "want an address"},
		{func(f *fileJSON) { f.Services[0].Past = make([]poolJSON, Most+1) }, "33 earlier pools"},
		{func(f *fileJSON) { f.Services[1] = f.Services[0] }, "stands there twice"},
		{func(f *fileJSON) { f.Services[0].Pool.Version = -1 }, "has version -1"},
		{func(f *fileJSON) { f.Services[0].Pool.Servers[0].Weight = 65536 }, "has weight 65536, want 0 to 65535"},
	} {
		f := (&Record{}).Next(serving(7, 1, 1), at(0), keep).file("")
		c.change(&f)
		data, err := json.Marshal(f)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := parse(data, at(0)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v, want %q", err, c.want)
		}
	}
}

// TestFormat: another format, and a pool without an end, are no record.
func TestFormat(t *testing.T) {
	r := (&Record{}).Next(serving(7, 1, 1), at(0), keep).Next(serving(8, 1, 0), at(1), keep)
	for _, change := range []func(*fileJSON){
		func(f *fileJSON) { f.Format = 2 },
		func(f *fileJSON) { f.Services[len(f.Services)-1].Past[0].Until = nil },
	} {
		f := r.file("")
		change(&f)
		data, err := json.Marshal(f)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := parse(data, at(0)); err == nil {
			t.Errorf("read without an error: %s", data)
		}
	}
}

// TestServices: the record as configuration: versions fall; where they
// do not, they are numbered again.
func TestServices(t *testing.T) {
	for _, c := range []struct{ served, want []int }{
		{[]int{1, 4, 9}, []int{9, 4, 1}}, {[]int{0, 0, 0}, []int{2, 1, 0}}, {[]int{0, 7, 7}, []int{7, 6, 5}},
	} {
		r := &Record{}
		for i, version := range c.served {
			r = r.Next(serving(version, 1, i), at(i), keep)
		}
		svc := r.Services()[1]
		got := []int{svc.Version}
		for i, v := range svc.History {
			got = append(got, v.Version)
			if !reflect.DeepEqual(v.Servers, pool(1, len(c.served)-2-i)) {
				t.Errorf("%v: pool %d before has %v", c.served, i, v.Servers)
			}
		}
		if svc.VIP != web || !reflect.DeepEqual(got, c.want) {
			t.Errorf("served %v: %v %v, want %v", c.served, svc.VIP, got, c.want)
		}
	}
}

// TestLoad: a reader moves nothing aside.
func TestLoad(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lb.json")
	if _, err := Load(path); err == nil {
		t.Error("no file was read")
	}
	if err := os.WriteFile(path, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Load(path); err == nil {
		t.Error("a corrupt file was read")
	}
	if _, err := os.Stat(path); err != nil {
		t.Error(err)
	}
	r := (&Record{}).Next(serving(7, 1), at(0), keep)
	if err := write(r, path); err != nil {
		t.Fatal(err)
	}
	if got, err := Load(path); err != nil || !got.Equal(r) {
		t.Errorf("%v, %v", got, err)
	}
}
