package wire

import (
	"fmt"
	"testing"

	"proffer/e2e/kit"
	"proffer/lab/testbed"
	"proffer/topo"
	"proffer/wire"
)

func inserting(svc *topo.Service) { svc.Wire = topo.Insert }

// TestInsert holds the frames on the links to docs/design/wire.md on inserted lists.
func TestInsert(t *testing.T) {
	for _, c := range []struct {
		policy          string
		choices, visits int
	}{
		{"hunt:static:1000", 2, 1},
		{"hunt:static:0", 2, 2},
		{"hunt:static:1000", 4, 1},
		{"hunt:static:0", 4, 4},
	} {
		t.Run(fmt.Sprintf("%s of %d", c.policy, c.choices), func(t *testing.T) {
			s := kit.Carried(kit.Settings(t, c.policy), inserting)
			s.Choices = c.choices
			w, file := listen(t, 5, s)
			kit.TakeOut(w.Frames)
			w.WantPlainClient(t, kit.Connections)
			pairs := w.Forwarded(t)
			if len(pairs) < kit.Connections {
				t.Fatalf("%d packets through the LB for %d connections", len(pairs), kit.Connections)
			}
			w.WantInserted(t, pairs, c.choices)
			w.WantVisits(t, pairs, c.visits)
			w.WantInsertedSignals(t)
			kit.Judge(t, file, len(pairs))
		})
	}
}

// TestInsertedBytes: segments inside the packets leave what they carry alone,
// also that of another flow's server.
func TestInsertedBytes(t *testing.T) {
	for _, policy := range []string{"hunt:static:0", "hunt:static:1000"} {
		bed := kit.Up(t, testbed.Config{Servers: 3})
		kit.Serve(t, bed)
		kit.Start(t, bed, kit.Carried(kit.Settings(t, policy), inserting))
		for range 3 {
			kit.WantMegabytes(t, bed, kit.URL)
		}
	}
	bed := kit.Up(t, testbed.Config{Servers: 2})
	for _, n := range bed.Servers {
		kit.Nginx(t, bed, n, nil)
	}
	farm := kit.Start(t, bed, kit.Carried(kit.Settings(t, "hunt:static:0"), inserting))
	const flows = 10
	for range flows {
		if got := kit.In(t, bed.Client, "curl", "-sS", "--fail", kit.URL+"/", kit.URL+"/"); got != "s1\ns1\n" && got != "s2\ns2\n" {
			t.Errorf("two requests of one connection were answered %q", got)
		}
	}
	if n := kit.Counter(t, farm, "accept_force", bed.Servers...); n != flows {
		t.Errorf("%d connections taken by the last candidate, want %d", n, flows)
	}
}

// TestInsertRecovers: another LB finds every flow's owner by inserted questions,
// and learns of it by an inserted answer.
func TestInsertRecovers(t *testing.T) {
	const flows = 50
	bed := kit.Up(t, testbed.Config{Servers: 4, LBs: 2})
	kit.Serve(t, bed)
	farm := kit.Start(t, bed, kit.Carried(kit.Settings(t, "hunt:static:0"), inserting))
	kit.Announce(t, bed, bed.LBs[0])
	conns := kit.Hold(t, bed, "tcp6", kit.VIP(bed), flows)
	c := kit.Record(t, bed)
	kit.Announce(t, bed, bed.LBs[1])
	kit.AskAll(t, conns)
	kit.AskAll(t, conns)
	w := kit.Recorded{Bed: bed, Frames: c.Stop(t)}
	kit.TakeOut(w.Frames)
	w.WantQuestions(t, bed.LBs[1], flows)
	if n := kit.Counter(t, farm, "stickiness_recovered", bed.LBs[1]); n != flows {
		t.Errorf("%d flows recovered, want %d", n, flows)
	}
	if n := kit.Counter(t, farm, "pass_on_not_mine", bed.Servers...); n < flows { // the last candidate has it
		t.Errorf("%d questions passed on, want at least %d", n, flows)
	}
	kit.WantNoStray(t, farm)
	kit.Judge(t, c.File, 4*flows)
}

// TestKernelEndInserted: the kernel's End (RFC 8986 §4.1) moves an inserted offer
// on to the next candidate, as it does an encapsulated one.
func TestKernelEndInserted(t *testing.T) {
	const flows = 20
	bed := kit.Up(t, testbed.Config{Servers: 2})
	kit.Serve(t, bed)
	farm := kit.Start(t, bed, kit.Carried(kit.Settings(t, "hunt:always"), inserting))
	s1, s2 := bed.Servers[0], bed.Servers[1]
	if err := farm.Daemon(s1).Stop(); err != nil {
		t.Fatal(err)
	}
	kit.KernelSRv6(t, s1, s1.Locator, "End")
	c := kit.Record(t, bed)
	for _, port := range portsTo(t, bed, 0, flows) {
		if got := serverOf(t, bed, port); got != s2.Name {
			t.Errorf("an offer to s1, s2 past the kernel of s1 was served by %q", got)
		}
	}
	kit.Settled(t, bed)
	w := kit.Recorded{Bed: bed, Frames: c.Stop(t)}
	kit.TakeOut(w.Frames)
	moved := 0
	for _, f := range w.On(s1, false) {
		if f.IsInserted() && f.TCP.Has(wire.SYN) && kit.Locator(f.Ip.Destination) == s2.Locator && f.Left() == 1 {
			moved++
		}
	}
	if taken := kit.Counter(t, farm, "accept_force", s2); moved < flows || taken < flows {
		t.Errorf("the kernel of s1 moved %d offers on and s2 took %d as the last candidate, want %d", moved, taken, flows)
	}
	kit.Judge(t, c.File, flows)
}
