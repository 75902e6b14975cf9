package experiment

import (
	"context"
	"net/netip"
	"slices"
	"testing"

	"proffer/load"
	"proffer/testbed"
)

// TestRouteAfterProxy: the same client's port, first through a proxy, whose kernel
// then has it in TIME_WAIT, and at once by the route that follows in its place.
func TestRouteAfterProxy(t *testing.T) {
	bed, err := testbed.Up(t.Context(), testbed.Config{Servers: 2})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := bed.Close(); err != nil {
			t.Error(err)
		}
	})
	c := &contest{bed: bed}
	if err := c.serve(context.Background()); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{byHAProxy, byRoute, byNginx, byRoute} {
		all := peers()
		b, err := all[slices.IndexFunc(all, func(p peer) bool { return p.name == name })].start(t.Context(), c)
		if err != nil {
			t.Fatal(err)
		}
		if err := c.answers(t.Context(), bed.VIP, b.processes...); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		request := load.Request{From: netip.AddrPortFrom(bed.ClientAddrs[1], firstPort)}
		client := load.Client{To: netip.AddrPortFrom(bed.VIP, testbed.Port), Enter: bed.Client.Enter}
		run, err := client.Run(t.Context(), []load.Request{request})
		if err != nil || len(run.Rows) != 1 || run.Rows[0].Outcome != load.OK || run.Rows[0].SYNRetransmits > 0 {
			t.Errorf("%s: %+v, %v", name, run.Rows, err)
		}
		if err := b.stop(); err != nil {
			t.Fatal(err)
		}
	}
}
