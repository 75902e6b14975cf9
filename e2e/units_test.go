package e2e

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"proffer/lab/farmrun"
	"proffer/lab/testbed"
)

// setpriv is the command that runs another with the capabilities of a daemon's unit, and more, and
// no other.
func setpriv(t *testing.T, verb string, more ...string) []string {
	t.Helper()
	unit, err := os.ReadFile("../dist/proffer-" + verb + ".service")
	must(t, err)
	_, rest, _ := strings.Cut(string(unit), "\nCapabilityBoundingSet=")
	line, _, found := strings.Cut(rest, "\n")
	if !found {
		t.Fatalf("the unit names no capabilities:\n%s", unit)
	}
	bounding := "-all"
	for _, c := range append(strings.Fields(line), more...) {
		bounding += ",+" + strings.ToLower(strings.TrimPrefix(c, "CAP_"))
	}
	return []string{program(t, "setpriv"), "--bounding-set=" + bounding, "--inh-caps=-all", "--no-new-privs"}
}

// TestFourCapabilities: daemons with the capabilities of their units, and no other, start,
// tell the service manager, take over and serve.
func TestFourCapabilities(t *testing.T) {
	dir := t.TempDir()
	manager, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: filepath.Join(dir, "notify"), Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer manager.Close()
	wrapper := filepath.Join(dir, "proffer")
	script := fmt.Sprintf("#!/bin/sh\nNOTIFY_SOCKET=%s exec %s %s \"$@\"\n", filepath.Join(dir, "notify"), strings.Join(setpriv(t, "lb"), " "), proffer)
	if err := os.WriteFile(wrapper, []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	bed := up(t, testbed.Config{Servers: 2})
	for _, n := range bed.Servers {
		echo(t, n, bed.VIP)
	}
	s := settings(t, "hunt:dynamic")
	s.Programs = wrapper
	farm, err := farmrun.Start(t.Context(), bed, s)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := farm.Stop(); err != nil {
			t.Error(err)
		}
	})
	flows := open(t, bed, 20000, 10)
	for range 3 { // one LB, two agents
		buffer := make([]byte, 100)
		if n, err := manager.Read(buffer); err != nil || string(buffer[:n]) != "READY=1" {
			t.Fatalf("the service manager got %q, %v", buffer[:n], err)
		}
	}
	for _, n := range append(bed.LBs, bed.Servers...) {
		kill(t, farm.Daemon(n))
		if err := farm.Launch(t.Context(), n); err != nil {
			t.Fatal(err)
		}
		if !status(t, farm, n).Adopted {
			t.Errorf("%s took over nothing", n.Name)
		}
	}
	alive(t, "under new daemons", flows)
}
