package daemons

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"proffer/e2e/kit"
	"proffer/lab/farmrun"
	"proffer/lab/testbed"
)

// keysOf is the path of a node's key file.
func keysOf(bed *testbed.Bed, n *testbed.Node) string { return filepath.Join(bed.Dir, n.Name+".keys") }

// keys runs `proffer keys` and returns the path of what it printed.
func keys(t *testing.T, bed *testbed.Bed, args ...string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "keys")
	text := kit.In(t, bed.Router, kit.Proffer, append([]string{"keys"}, args...)...)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// spread gives every LB a file of keys, and every agent the one made from it, as
// docs/operate/farm.md, and returns when each has read its own.
func spread(t *testing.T, farm *farmrun.Farm, file string) {
	t.Helper()
	bed := farm.Bed
	for _, n := range bed.LBs {
		replaceKeys(t, farm, n, file)
	}
	for _, n := range bed.Servers {
		replaceKeys(t, farm, n, keys(t, bed, "server", file, "--locator", n.Locator.String()))
	}
}

// replaceKeys makes a node's daemon read other keys.
func replaceKeys(t *testing.T, farm *farmrun.Farm, n *testbed.Node, file string) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	path := keysOf(farm.Bed, n)
	if err := os.WriteFile(path+".new", text, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
	before := kit.Status(t, farm, n).Reloads
	hangUp(t, farm, n)
	kit.EventuallyIs(t, "files read by "+n.Name, before+1, func() uint64 { return kit.Status(t, farm, n).Reloads })
}

// TestKeysRotate: while every node is in use, all get new keys in three steps,
// and no node accepts a signal with a wrong tag.
func TestKeysRotate(t *testing.T) {
	bed := kit.Up(t, testbed.Config{Servers: 3, LBs: 2})
	kit.Serve(t, bed)
	s := kit.Settings(t, "hunt:static:1")
	const echoPort = testbed.Port + 1
	both(&s, echoPort)
	farm := kit.Start(t, bed, s)
	flows := openEchoes(t, bed, echoPort, 60)
	nodes := slices.Concat(bed.LBs, bed.Servers)
	underLoad(t, bed, func() {
		for round := range 2 { // the second time the new key is the old one
			old, fresh := fmt.Sprint(1+round), fmt.Sprint(2+round)
			for _, step := range [][]string{
				{"new", "--from", keysOf(bed, bed.LBs[0])},
				{"promote", keysOf(bed, bed.LBs[0]), "--id", fresh},
				{"drop", keysOf(bed, bed.LBs[0]), "--id", old},
			} {
				spread(t, farm, keys(t, bed, step...))
				kit.Alive(t, strings.Join(step[:1], " "), flows)
			}
			// What was signed under the new key alone is believed, too.
			for _, lb := range bed.LBs {
				if err := bed.Announce(lb); err != nil {
					t.Fatal(err)
				}
				kit.Alive(t, "over "+lb.Name, flows)
			}
		}
	})
	for _, n := range nodes {
		if bad := kit.Counter(t, farm, "drop_bad_tag", n); bad > 0 {
			t.Errorf("%s did not believe %d packets", n.Name, bad)
		}
	}
	text, err := os.ReadFile(keysOf(bed, bed.LBs[0]))
	if err != nil || !strings.Contains(string(text), "id: 3") || strings.Contains(string(text), "id: 1") {
		t.Errorf("in the end the LBs have (%v)\n%s", err, text)
	}
}

// TestWrongKey: a server with a key that no other node has takes part in nothing,
// the counters say so, and clients are served by the others.
func TestWrongKey(t *testing.T) {
	bed := kit.Up(t, testbed.Config{Servers: 2})
	kit.Serve(t, bed)
	farm := kit.Start(t, bed, kit.Settings(t, "hunt:always"))
	odd, lb := bed.Servers[0], bed.LBs[0]
	replaceKeys(t, farm, odd, keys(t, bed, "server", keys(t, bed, "new"), "--locator", odd.Locator.String()))
	believed := kit.Served(t, farm, odd)
	kit.Eventually(t, "the odd server was a first candidate", func() bool {
		if got := kit.In(t, bed.Client, "curl", "-sS", "--fail", kit.URL+"/"); strings.TrimSpace(got) == odd.Name {
			t.Errorf("answered by %s, who has another key", odd.Name)
		}
		return kit.Counter(t, farm, "drop_bad_tag", odd) > 0
	})
	if n := kit.Served(t, farm, odd); n != believed {
		t.Errorf("%s took %d offers that it could not believe", odd.Name, n-believed)
	}
	text := kit.In(t, odd, kit.Proffer, "status", "--control", kit.Control(bed, odd))
	if printed(t, text, "drop_bad_tag") < 1 {
		t.Errorf("the operator does not see why:\n%s", text)
	}
	// With the farm's key and a wrong key of its own it accepts signals, and its own are rejected.
	mixed := strings.Replace(contentOf(t, keysOf(bed, odd)), ownKey(t, keysOf(bed, odd), "farm"), ownKey(t, keysOf(bed, lb), "farm"), 1)
	file := filepath.Join(t.TempDir(), "mixed")
	if err := os.WriteFile(file, []byte(mixed), 0o600); err != nil {
		t.Fatal(err)
	}
	replaceKeys(t, farm, odd, file)
	kit.Eventually(t, "the LB does not believe the odd server", func() bool {
		kit.In(t, bed.Client, "curl", "-sS", "--fail", kit.URL+"/")
		return kit.Counter(t, farm, "drop_bad_tag", lb) > 0
	})
}

func contentOf(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// ownKey is the value of a key in a file of one.
func ownKey(t *testing.T, path, name string) string {
	t.Helper()
	_, rest, found := strings.Cut(contentOf(t, path), name+": \"")
	value, _, ended := strings.Cut(rest, "\"")
	if !found || !ended {
		t.Fatalf("no %s in\n%s", name, contentOf(t, path))
	}
	return value
}
