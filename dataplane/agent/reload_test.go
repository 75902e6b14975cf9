package agent_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"proffer/proof/rig"
	"proffer/topo"
)

// TestSocketsOfReload: the open sockets of a service that comes with a reload count, and those
// of one that goes do not count for the next service that gets its number.
func TestSocketsOfReload(t *testing.T) {
	bySockets := func(o *topo.Offering) { o.Measure = topo.Sockets }
	web, more, idle := rig.Offering(rig.HuntPort, bySockets), rig.Offering(8080, bySockets), rig.Offering(8081, bySockets)
	r := rig.NewAgent(t, rig.Hits{}, web)
	first, second := rig.Listen(t, rig.HuntPort, 128), rig.Listen(t, 8080, 128)
	if err := r.AttachSockets(); err != nil {
		t.Fatal(err)
	}
	rig.Queue(t, first, rig.HuntPort, 2)
	rig.Queue(t, second, 8080, 3)
	open(r, t, "its own", 2)
	for _, c := range []struct {
		step     string
		services []topo.Offering
		want     uint32 // of the first
	}{
		{"added", []topo.Offering{more, web}, 3},
		{"kept", []topo.Offering{web, more}, 2},
		{"removed", []topo.Offering{more}, 3},
		{"with its number", []topo.Offering{idle, more}, 0},
		{"back by another number", []topo.Offering{web, idle, more}, 2},
	} {
		if _, err := r.Offer(c.services); err != nil {
			t.Fatal(err)
		}
		open(r, t, c.step, c.want)
	}
	rig.Reset(t, first)
	open(r, t, "listener closed", 0)
}

// TestRefusedReloadChangesNothing: a service with a path that is no namespace is a mistake before another
// service is removed.
func TestRefusedReloadChangesNothing(t *testing.T) {
	r := rig.NewAgent(t, rig.Hits{}, rig.Offering(81), rig.Offering(rig.HuntPort))
	path := filepath.Join(t.TempDir(), "web")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := r.Offer([]topo.Offering{
		rig.Offering(rig.HuntPort, func(o *topo.Offering) { o.Threshold = 9 }),
		rig.Offering(82, func(o *topo.Offering) { o.Owner, o.Netns = topo.Netns, path }),
	})
	if err == nil || !strings.Contains(err.Error(), path) {
		t.Fatalf("a file for a namespace: %v", err)
	}
	if n := r.Offered(t); n != 3 {
		t.Errorf("%d entries for two services and their address", n)
	}
	if l, err := r.Load(1); err != nil || l.Threshold != 4 {
		t.Errorf("load %+v, %v", l, err)
	}
}
