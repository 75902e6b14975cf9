package testbed

import (
	"errors"
	"testing"
	"time"
)

// A failed LB is silent, its processes are dead, and the router goes on sending flows to it;
// only Kill makes the router turn to the others.
func TestFailedLB(t *testing.T) {
	for _, loss := range []float64{0, 0.001} { // with the programs of a lossy cable in the place, too
		b := up(t, Config{Servers: 1, LBs: 2})
		who(t, b.LBs...)
		if err := b.SetLoss(loss); err != nil {
			t.Fatal(err)
		}
		dying := b.LBs[1]
		process := start(t, dying, "sh", "-c", "echo ready; sleep 1000")
		waitFor(t, "the process", func() bool { return process.Log() != "" })

		if err := b.Fail(dying); err != nil {
			t.Fatal(err)
		}
		if err := b.SetLoss(0); err != nil {
			t.Fatal(err)
		}
		wantGone(t, process.Pid())
		answered, silent := 0, 0
		for range 100 {
			c := dial(t, b.Client, "udp", vips()[0].Addr())
			before := swallowed(t, b)
			if _, err := c.Write([]byte("who")); err != nil {
				t.Fatal(err)
			}
			waitFor(t, "an answer, or a swallowed frame", func() bool {
				name := make([]byte, 100)
				c.SetReadDeadline(time.Now().Add(5 * time.Millisecond))
				switch n, err := c.Read(name); {
				case err == nil && string(name[:n]) != b.LBs[0].Name:
					t.Fatalf("%s answers from a dead host", name[:n])
				case err == nil:
					answered++
				case swallowed(t, b) > before:
					silent++
				default:
					return false
				}
				return true
			})
		}
		if answered == 0 || silent == 0 {
			t.Errorf("%d of 100 flows were answered: the router sends to one LB only", answered)
		}
		kill(t, b, dying)
		wantSpread(t, b, b.LBs[0])
		revive(t, b, dying)
		who(t, dying)
		announce(t, b, b.LBs...)
		wantSpread(t, b, b.LBs...)
		if err := b.Close(); err != nil {
			t.Fatal(err)
		}
		if _, err := b.Swallowed(); !errors.Is(err, errClosed) {
			t.Errorf("Swallowed of a closed bed: %v", err)
		}
		if err := b.Fail(dying); !errors.Is(err, errClosed) {
			t.Errorf("Fail of a closed bed: %v", err)
		}
	}
}

func swallowed(t *testing.T, b *Bed) uint64 {
	t.Helper()
	n, err := b.Swallowed()
	if err != nil {
		t.Fatal(err)
	}
	return n
}
