package testbed

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
)

// pin pins a map in the node's directory, as a daemon would.
func pin(t *testing.T, n *Node) string {
	t.Helper()
	if err := os.MkdirAll(n.Pin(), 0o700); err != nil {
		t.Fatal(err)
	}
	m, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.Array, KeySize: 4, ValueSize: 4, MaxEntries: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	path := filepath.Join(n.Pin(), "map")
	if err := m.Pin(path); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestPins(t *testing.T) {
	a, b := up(t, Config{Servers: 1}), up(t, Config{Servers: 1})
	other := pin(t, b.Servers[0])
	mine := pin(t, a.Servers[0])
	pin(t, a.LBs[0])
	if a.Servers[0].Pin() == b.Servers[0].Pin() || !strings.HasSuffix(a.Servers[0].Pin(), "/s1") {
		t.Fatalf("pins at %s and %s", a.Servers[0].Pin(), b.Servers[0].Pin())
	}
	// A node's processes see them, for the file system is the machine's.
	if err := start(t, a.Servers[0], "test", "-e", mine).Wait(); err != nil {
		t.Fatalf("a process does not see its node's pins: %v", err)
	}
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(pins(a.Run)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("pins of a closed bed are left (%v)", err)
	}
	if _, err := os.Stat(other); err != nil {
		t.Errorf("pins of another bed: %v", err)
	}
}
