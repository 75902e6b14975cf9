package main

import (
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"proffer/cmd/internal/cli"
	"proffer/config"
	"proffer/topo"
	"proffer/wire"
)

const threeKeys = `# Signal keys of every load balancer. Secret. The first signs, all are accepted.
keys:
  - id: 1
    farm: "11111111111111111111111111111111"
    master: "1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a"
  - id: 2
    farm: "22222222222222222222222222222222"
    master: "2a2a2a2a2a2a2a2a2a2a2a2a2a2a2a2a"
  - id: 9
    farm: "99999999999999999999999999999999"
    master: "9a9a9a9a9a9a9a9a9a9a9a9a9a9a9a9a"
`

// keyFile writes a file of keys and returns its path.
func keyFile(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "lb.keys")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// printedBy is the output of `proffer keys`.
func printedBy(t *testing.T, args ...string) string {
	t.Helper()
	code, stdout, stderr := call(t, append([]string{"keys"}, args...)...)
	if code != cli.OK || stderr != "" {
		t.Fatalf("proffer keys %q: exit %d, %s", args, code, stderr)
	}
	return stdout
}

func parsed(t *testing.T, text string) []topo.SignalKey {
	t.Helper()
	keys, err := config.ParseLBKeys("printed", []byte(text))
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	return keys
}

func TestKeysNew(t *testing.T) {
	first, second := parsed(t, printedBy(t, "new")), parsed(t, printedBy(t, "new"))
	if len(first) != 1 || first[0].ID != 1 || first[0].Farm == first[0].Server {
		t.Errorf("%d keys, id %d", len(first), first[0].ID)
	}
	if first[0].Farm == second[0].Farm || first[0].Server == second[0].Server {
		t.Error("two keys are the same")
	}
	if first[0].Farm == (topo.Key{}) || first[0].Server == (topo.Key{}) {
		t.Error("a key is zero")
	}
}

func TestKeysNewFrom(t *testing.T) {
	text := printedBy(t, "new", "--from", keyFile(t, threeKeys))
	keys := parsed(t, text)
	if len(keys) != 4 || keys[3].ID != 10 || !reflect.DeepEqual(keys[:3], parsed(t, threeKeys)) || !strings.HasPrefix(text, threeKeys) {
		t.Errorf("got\n%s", text)
	}
}

func TestFreeID(t *testing.T) {
	for _, c := range []struct {
		taken []uint8
		want  uint8
	}{
		{nil, 1}, {[]uint8{1}, 2}, {[]uint8{2}, 3}, {[]uint8{7, 3}, 8}, {[]uint8{254}, 255},
		{[]uint8{255}, 1}, {[]uint8{1, 255, 2}, 3}, {[]uint8{255, 1, 3}, 2},
	} {
		var keys []topo.SignalKey
		for _, id := range c.taken {
			keys = append(keys, topo.SignalKey{ID: id})
		}
		if got := freeID(keys); got != c.want {
			t.Errorf("beside %d: got %d, want %d", c.taken, got, c.want)
		}
	}
}

// TestAddKey: all its secrets come from the source, and nothing else does.
func TestAddKey(t *testing.T) {
	const random = "0123456789abcdefFEDCBA9876543210"
	keys, err := addKey(nil, strings.NewReader(random))
	want := topo.SignalKey{ID: 1, Farm: topo.Key([]byte(random[:16])), Server: topo.Key([]byte(random[16:]))}
	if err != nil || len(keys) != 1 || keys[0] != want {
		t.Errorf("%v, %v", err, keys)
	}
	if _, err := addKey(nil, strings.NewReader(random[1:])); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("too little randomness: %v", err)
	}
}

func TestKeysPromoteAndDrop(t *testing.T) {
	file := keyFile(t, threeKeys)
	head, entries, _ := strings.Cut(threeKeys, "  - id: 1\n")
	one, rest, _ := strings.Cut("  - id: 1\n"+entries, "  - id: 2\n")
	two, nine, _ := strings.Cut("  - id: 2\n"+rest, "  - id: 9\n")
	nine = "  - id: 9\n" + nine
	for _, c := range []struct{ verb, id, want string }{
		{"promote", "9", head + nine + one + two},
		{"promote", "2", head + two + one + nine},
		{"promote", "1", threeKeys},
		{"drop", "2", head + one + nine},
		{"drop", "9", head + one + two},
	} {
		if got := printedBy(t, c.verb, file, "--id", c.id); got != c.want {
			t.Errorf("%s %s: got\n%s", c.verb, c.id, got)
		}
	}
	if text, err := os.ReadFile(file); err != nil || string(text) != threeKeys {
		t.Errorf("the file was changed: %v\n%s", err, text)
	}
}

func TestKeysServer(t *testing.T) {
	got := printedBy(t, "server", keyFile(t, threeKeys), "--locator", "5f00:0:2:1::/64")
	want := parsed(t, threeKeys)
	for i, k := range want {
		want[i].Server = wire.ServerKey(k.Server, netip.MustParsePrefix("5f00:0:2:1::/64"))
	}
	keys, err := config.ParseAgentKeys("printed", []byte(got), netip.MustParsePrefix("5f00:0:2:1::/64"))
	if err != nil || !reflect.DeepEqual(keys, want) {
		t.Errorf("%v\n%s", err, got)
	}
	for _, master := range []string{"1a1a", "2a2a", "9a9a"} {
		if strings.Contains(got, master) {
			t.Errorf("a server gets a master:\n%s", got)
		}
	}
}

// TestRotation walks the three steps. At each, whatever of two neighbouring
// files a node has, it accepts the signatures of every other file.
func TestRotation(t *testing.T) {
	before := printedBy(t, "new")
	added := printedBy(t, "new", "--from", keyFile(t, before))
	promoted := printedBy(t, "promote", keyFile(t, added), "--id", "2")
	dropped := printedBy(t, "drop", keyFile(t, promoted), "--id", "1")
	files := []string{before, added, promoted, dropped}
	for i := range files[1:] {
		for _, pair := range [][2]string{{files[i], files[i+1]}, {files[i+1], files[i]}} {
			signer, checker := parsed(t, pair[0])[0], parsed(t, pair[1])
			accepted := false
			for _, k := range checker {
				accepted = accepted || k == signer
			}
			if !accepted {
				t.Errorf("step %d: key %d is not accepted", i+1, signer.ID)
			}
		}
	}
	if last := parsed(t, dropped); len(last) != 1 || last[0].ID != 2 {
		t.Errorf("after the rotation:\n%s", dropped)
	}
}

func TestKeysRefuse(t *testing.T) {
	file := keyFile(t, threeKeys)
	single := keyFile(t, printedBy(t, "new"))
	full := printedBy(t, "new")
	for range config.MaxKeys - 1 {
		full = printedBy(t, "new", "--from", keyFile(t, full))
	}
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"rotate"}, "unknown verb \"keys rotate\"; see `proffer help keys` for the list\n"},
		{[]string{"new", "lb.keys"}, "proffer keys new takes no argument, got \"lb.keys\"; see `proffer keys new --help`\n"},
		{[]string{"new", "--from", keyFile(t, full)}, "--from: there are 8 keys already, the maximum; drop a key first\n"},
		{[]string{"promote"}, "FILE is missing: a load balancer's file of signal keys; see `proffer keys promote --help`\n"},
		{[]string{"drop", file, "1", "--id", "1"}, "proffer keys drop takes one FILE, got \"1\" too; see `proffer keys drop --help`\n"},
		{[]string{"promote", file}, "--id N is missing: the key to promote\n"},
		{[]string{"drop", file}, "--id N is missing: the key to drop\n"},
		{[]string{"promote", file, "--id", "3"}, "--id 3: " + file + " has the keys 1, 2, 9\n"},
		{[]string{"promote", file, "--id", "0"}, "--id 0: " + file + " has the keys 1, 2, 9\n"},
		{[]string{"promote", file, "--id", "256"}, "invalid argument \"256\" for \"--id\" flag"},
		{[]string{"drop", file, "--id", "1"}, "--id 1: it is the key that signs; promote another key first\n"},
		{[]string{"drop", single, "--id", "1"}, "--id 1: it is the only key; for signals without tags write signal_keys: none in every configuration\n"},
		{[]string{"server", file}, "--locator PREFIX is missing: the server's, as in node.locator of its agent\n"},
		{[]string{"server", file, "--locator", "5f00::/48"}, "--locator: \"5f00::/48\" is not an IPv6 /64 prefix such as 5f00:0:1:1::/64\n"},
		{[]string{"server", file, "--locator", "5f00:0:2:1::1/64"}, "--locator: \"5f00:0:2:1::1/64\" has bits behind the prefix (write 5f00:0:2:1::/64); want an IPv6 /64 prefix"},
		{[]string{"server", "--locator", "5f00:0:2:1::/64"}, "FILE is missing: a load balancer's file of signal keys"},
	} {
		wantLine(t, append([]string{"keys"}, c.args...), cli.Usage, c.want)
	}
}

// TestKeysOfBadFiles: the file is at fault, not the call, and stays a secret.
func TestKeysOfBadFiles(t *testing.T) {
	missing := filepath.Join(t.TempDir(), "no.keys")
	agents := keyFile(t, strings.ReplaceAll(threeKeys, "master", "server"))
	broken := keyFile(t, strings.Replace(threeKeys, "22222222", "2222222", 1))
	for _, verb := range [][]string{{"new", "--from"}, {"promote", "--id", "1"}, {"drop", "--id", "2"}, {"server", "--locator", "5f00:0:2:1::/64"}} {
		args := append([]string{"keys"}, verb...)
		wantLine(t, append(args, missing), cli.Failed, "read keys: open "+missing+": no such file or directory\n")
		wantLine(t, append(args, broken), cli.Failed, broken+":7:11: keys[1].farm: is not 32 hex digits, the same on every node\n")
		code, stdout, stderr := call(t, append(args, agents)...)
		if code != cli.Failed || stdout != "" || !strings.Contains(stderr, agents+":3:5: keys[0].master: is missing") || strings.Contains(stderr, "1a1a") {
			t.Errorf("%s of an agent's file: exit %d, stdout %q, stderr\n%s", verb[0], code, stdout, stderr)
		}
	}
	wantLine(t, []string{"keys", "new", "--from="}, cli.Failed, "read keys: open : no such file or directory\n")
}

type fullDisk struct{}

func (fullDisk) Write([]byte) (int, error) { return 0, errors.New("disk full") }

func TestKeysThatCannotBeWritten(t *testing.T) {
	var stderr strings.Builder
	code := cli.Run(t.Context(), newRoot(), []string{"keys", "new"}, fullDisk{}, &stderr)
	if want := "proffer: print: disk full\n"; code != cli.Failed || stderr.String() != want {
		t.Errorf("exit %d, %q", code, stderr.String())
	}
}

func TestKeysHelpIsComplete(t *testing.T) {
	_, general, _ := call(t, "help", "keys")
	verbs := newKeys().Commands()
	if len(verbs) != 4 {
		t.Errorf("%d verbs", len(verbs))
	}
	for _, cmd := range verbs {
		if !strings.Contains(general, cmd.Short) || !strings.Contains(general, "proffer keys "+cmd.Name()+" ") {
			t.Errorf("proffer help keys does not mention %s", cmd.Name())
		}
		code, text, _ := call(t, "help", "keys", cmd.Name())
		if code != cli.OK || cmd.Long == "" || !strings.Contains(text, cmd.Long) {
			t.Errorf("proffer help keys %s: exit %d\n%s", cmd.Name(), code, text)
		}
		cmd.Flags().VisitAll(func(f *pflag.Flag) {
			if len(f.Usage) < 10 || !strings.Contains(text, fmt.Sprintf("--%s ", f.Name)) {
				t.Errorf("proffer help keys %s: --%s is not described", cmd.Name(), f.Name)
			}
		})
	}
	if _, bare, _ := call(t, "keys"); bare != general {
		t.Errorf("proffer keys alone prints otherwise than proffer help keys:\n%s", bare)
	}
}
