package farm

import (
	"testing"

	"proffer/e2e/kit"
	"proffer/lab/testbed"
)

// TestLearnedLBDies: the host of one of two LBs dies under long flows, and the router sends them to
// the other, which knows none of them. No server has an agent to ask, so a flow goes to the server of
// its bucket: with `single` that is its own, with dispatch by load one in four times.
func TestLearnedLBDies(t *testing.T) {
	const servers, flows = 4, 240
	for _, c := range []struct {
		dispatch    string
		least, most int // flows lost: 3/4 of them, ± 5 standard deviations
	}{{"single", 0, 0}, {"learned", 146, 214}, {"lsq", 146, 214}} {
		t.Run(c.dispatch, func(t *testing.T) {
			bed := kit.Up(t, testbed.Config{Servers: servers, LBs: 2})
			s := kit.Settings(t, c.dispatch)
			s.NoAgents = true
			kit.Start(t, bed, s)
			kit.Echoes(t, bed, bed.Servers...)
			kit.Announce(t, bed, bed.LBs[0])
			open := kit.OpenTo(t, bed, bed.VIP, bed.ClientAddrs, 20000, flows)
			at := open.Servers()
			if err := bed.Kill(bed.LBs[0]); err != nil {
				t.Fatal(err)
			}
			kit.Announce(t, bed, bed.LBs[1])
			dead, moved := kit.Lost(t, open, at)
			t.Logf("%s: %d of %d flows lost", c.dispatch, dead, flows)
			if dead < c.least || dead > c.most || moved > 0 {
				t.Errorf("%d of %d flows lost, want %d to %d; %d were answered by another server", dead, flows, c.least, c.most, moved)
			}
		})
	}
}
