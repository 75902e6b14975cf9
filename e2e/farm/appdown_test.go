package farm

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"proffer/e2e/kit"
	"proffer/lab/testbed"
	"proffer/lab/traffic"
)

// TestOneApplicationLeft: of all candidates only one still has an application,
// wherever it stands in a list, and no client is refused.
func TestOneApplicationLeft(t *testing.T) {
	const requests = 240
	for _, choices := range []int{2, 3} {
		t.Run(fmt.Sprintf("%d choices", choices), func(t *testing.T) {
			bed := kit.Up(t, testbed.Config{Servers: choices})
			servers := kit.Serve(t, bed)
			s := kit.Settings(t, "hunt:static:0") // the last that listens
			s.Choices = choices
			farm := kit.Start(t, bed, s)
			left := bed.Servers[choices-1]
			began, gone := time.Now(), time.Duration(0)
			down := func(done, _ int) {
				if done < requests/4 || gone > 0 {
					return
				}
				for _, s := range servers.All[:choices-1] {
					s.Close()
				}
				gone = time.Since(began)
			}
			client := traffic.Client{To: kit.VIP(bed), Enter: bed.Client.Enter, Progress: down, Timeout: kit.Patience}
			run, err := client.Run(t.Context(), kit.Every(5*time.Millisecond, requests))
			if err != nil {
				t.Fatal(err)
			}
			late := 0 // answered by the one after the others were gone
			for _, row := range run.Rows {
				after := row.Started > gone
				// What was open when its application ended ends with it, by a reset.
				if row.Outcome == traffic.Refused || after && row.Outcome != traffic.OK {
					t.Errorf("request %d did not get a connection: %s: %s", row.ID, row.Outcome, row.Cause)
				}
				if after && row.Server == left.Name {
					late++
				}
			}
			empty := bed.Servers[:choices-1]
			passed, returned := kit.Counter(t, farm, "pass_on_no_listener", empty...), kit.Counter(t, farm, "give_back_no_listener", empty...)
			if passed == 0 || returned == 0 || late == 0 {
				t.Errorf("offers passed on %d, given back %d, %d late answers: want some of each", passed, returned, late)
			}
			if n := kit.Counter(t, farm, "offer_returned", bed.LBs[0]); n != returned {
				t.Errorf("the LB offered %d again, %d were given back", n, returned)
			}
			if n := kit.Counter(t, farm, "refuse_no_listener", bed.Servers...); n > 0 {
				t.Errorf("%d offers refused", n)
			}
			wantAllRefused(t, bed, func() uint64 { return kit.Counter(t, farm, "refuse_no_listener", bed.Servers...) }, servers.All[choices-1].Close)
		})
	}
}

// wantAllRefused ends the last application: now every client learns that no process
// listens, in answer to the first SYN that it sends.
func wantAllRefused(t *testing.T, bed *testbed.Bed, refused func() uint64, end func() error) {
	t.Helper()
	const clients = 20
	if err := end(); err != nil {
		t.Fatal(err)
	}
	for range clients {
		if _, err := kit.TryDial(t, bed, kit.Patience); !errors.Is(err, unix.ECONNREFUSED) {
			t.Errorf("with no application left: %v", err)
		}
	}
	if n := refused(); n != clients {
		t.Errorf("%d offers refused for want of a listener, want %d", n, clients)
	}
}
