package wire

import (
	"fmt"
	"testing"

	"proffer/e2e/kit"
	"proffer/lab/farmrun"
	"proffer/lab/testbed"
)

// listen runs the policy, makes the connections and returns what was on the
// links, and the capture's file.
func listen(t *testing.T, servers int, s farmrun.Settings) (kit.Recorded, string) {
	t.Helper()
	bed := kit.Up(t, testbed.Config{Servers: servers})
	kit.Serve(t, bed)
	kit.Start(t, bed, s)
	c := kit.Record(t, bed)
	exchange(t, bed)
	kit.Settled(t, bed)
	return kit.Recorded{Bed: bed, Frames: c.Stop(t)}, c.File
}

// TestWire reads, for every policy and length of list, what the issue promises
// of the packets from what was on the links.
func TestWire(t *testing.T) {
	for _, c := range []struct {
		policy           string
		choices, servers int
		list             int // candidates an offer names; 0: no offer is made
	}{
		{"hunt:static:4", 2, 4, 2},
		{"hunt:static:0", 2, 4, 2}, // everything is passed on
		{"hunt:static:0", 3, 4, 3},
		{"hunt:static:4", 4, 5, 4},
		{"hunt:static:0", 4, 5, 4},
		{"hunt:static:0", 2, 1, 1}, // fewer servers than choices
		{"hunt:static:0", 4, 2, 2},
		{"single", 0, 4, 0},
	} {
		t.Run(fmt.Sprintf("%s,%d of %d", c.policy, c.choices, c.servers), func(t *testing.T) {
			s := kit.Settings(t, c.policy)
			s.Choices = c.choices
			w, file := listen(t, c.servers, s)
			w.WantPlainClient(t, kit.Connections)
			pairs := w.Forwarded(t)
			if len(pairs) < kit.Connections {
				t.Fatalf("%d packets through the LB for %d connections", len(pairs), kit.Connections)
			}
			w.WantSizes(t, pairs, c.list)
			w.WantOuterHeaders(t, pairs)
			w.WantLabels(t)
			w.WantReplies(t, c.list > 0)
			if c.policy == "hunt:static:0" {
				w.WantPassedOn(t, pairs, c.list)
			}
			kit.Judge(t, file, len(pairs))
		})
	}
}
