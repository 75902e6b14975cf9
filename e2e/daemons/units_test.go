package daemons

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"proffer/e2e/kit"
	"proffer/lab/farmrun"
	"proffer/lab/testbed"
)

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
	script := fmt.Sprintf("#!/bin/sh\nNOTIFY_SOCKET=%s exec %s %s \"$@\"\n", filepath.Join(dir, "notify"), strings.Join(kit.Setpriv(t, "lb"), " "), kit.Proffer)
	if err := os.WriteFile(wrapper, []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	bed := kit.Up(t, testbed.Config{Servers: 2})
	for _, n := range bed.Servers {
		kit.Echo(t, n, bed.VIP)
	}
	s := kit.Settings(t, "hunt:dynamic")
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
	flows := kit.Open(t, bed, 20000, 10)
	for range 3 { // one LB, two agents
		buffer := make([]byte, 100)
		if n, err := manager.Read(buffer); err != nil || string(buffer[:n]) != "READY=1" {
			t.Fatalf("the service manager got %q, %v", buffer[:n], err)
		}
	}
	for _, n := range append(bed.LBs, bed.Servers...) {
		kit.Kill(t, farm.Daemon(n))
		if err := farm.Launch(t.Context(), n); err != nil {
			t.Fatal(err)
		}
		if !kit.Status(t, farm, n).Adopted {
			t.Errorf("%s took over nothing", n.Name)
		}
	}
	kit.Alive(t, "under new daemons", flows)
}
