package farm

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"proffer/api"
	"proffer/e2e/kit"
	"proffer/lab/farmrun"
	"proffer/lab/testbed"
	"proffer/topo"
)

// slowly downloads so many bytes of the service, in small parts until it may hurry.
func slowly(ctx context.Context, n *testbed.Node, size int64, got *atomic.Int64, hurry *atomic.Bool) error {
	transport := &http.Transport{DialContext: n.DialContext, DisableKeepAlives: true, ReadBufferSize: 4096}
	defer transport.CloseIdleConnections()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, fmt.Sprintf("%s/bytes/%d", kit.URL, size), nil)
	if err != nil {
		return err
	}
	resp, err := transport.RoundTrip(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	for {
		part, err := io.CopyN(io.Discard, resp.Body, 20_000)
		got.Add(part)
		if err == io.EOF || got.Load() == size {
			return nil
		}
		if err != nil {
			return fmt.Errorf("after %d bytes of %d: %w", got.Load(), size, err)
		}
		if !hurry.Load() {
			time.Sleep(10 * time.Millisecond)
		}
	}
}

// pointers are those of the elements.
func pointers[T any](all []T) (list []*T) {
	for i := range all {
		list = append(list, &all[i])
	}
	return list
}

// seatsAt adds up the flows that count at an LB's servers.
func seatsAt(t *testing.T, farm *farmrun.Farm, lb *testbed.Node) (flows int) {
	t.Helper()
	s := kit.Status(t, farm, lb)
	var l api.LearningStatus
	if s.Services[0].Learning != nil {
		l = *s.Services[0].Learning
	}
	for _, server := range l.Servers {
		flows += int(server.Established)
	}
	return flows
}

// TestSeatsSurviveAnLB: an LB dies in the middle of downloads and of exchanges, of learned and of lsq. The
// other LB asks the servers' agents: no connection breaks, and each counts at its server as soon as
// the server has sent a segment with room for a signal.
func TestSeatsSurviveAnLB(t *testing.T) {
	const conns, streams, size = 20, 10, 30_000_000
	for _, mode := range []string{"learned", "lsq"} {
		t.Run(mode, func(t *testing.T) {
			bed := kit.Up(t, testbed.Config{Servers: 5, LBs: 2})
			kit.Serve(t, bed)
			s := kit.Settings(t, mode)
			s.LB = func(lb *topo.LB) { lb.Services[0].Recovery = topo.AgentsRecovery }
			farm := kit.Start(t, bed, s)
			if err := bed.Announce(bed.LBs[0]); err != nil {
				t.Fatal(err)
			}
			group, ctx := errgroup.WithContext(t.Context())
			got, hurry := make([]atomic.Int64, conns), atomic.Bool{}
			t.Cleanup(func() { hurry.Store(true); group.Wait() })
			for i := range conns {
				group.Go(func() error { return slowly(ctx, bed.Client, size, &got[i], &hurry) })
			}
			rounds := make([]atomic.Int64, streams)
			for i := range rounds {
				group.Go(func() error { return stream(ctx, bed.Client, &hurry, &rounds[i]) })
			}
			kit.Eventually(t, "all downloads and exchanges have begun", func() bool {
				waits := func(n *atomic.Int64) bool { return n.Load() == 0 }
				return !slices.ContainsFunc(pointers(got), waits) && !slices.ContainsFunc(pointers(rounds), waits)
			})
			if err := bed.Kill(bed.LBs[0]); err != nil {
				t.Fatal(err)
			}
			if err := bed.Announce(bed.LBs[1]); err != nil {
				t.Fatal(err)
			}
			kit.Eventually(t, "the other LB counts the exchanges", func() bool { return seatsAt(t, farm, bed.LBs[1]) >= streams })
			hurry.Store(true)
			if err := group.Wait(); err != nil {
				t.Error(err)
			}
			kit.Eventually(t, "no flow is counted", func() bool { return seatsAt(t, farm, bed.LBs[1]) == 0 })
			if n := kit.Counter(t, farm, "flow_seated", bed.LBs[1]); n < streams {
				t.Errorf("%d flows took a seat", n)
			}
		})
	}
}

// TestSeatsWithoutAgents: an LB dies, and no server can be asked. By weight the other LB presumes the
// right server of every flow; by flows it presumes the wrong one of about 1 − 1/N, and counts each
// guess.
func TestSeatsWithoutAgents(t *testing.T) {
	for mode, most := range map[string]int{"wcmp": 0, "lsq": kit.SingleFlows} {
		bed, farm := singleFarm(t, mode, false, 2)
		flows := kit.Open(t, bed, 20000, kit.SingleFlows)
		at := flows.Servers()
		if err := bed.Kill(bed.LBs[0]); err != nil {
			t.Fatal(err)
		}
		if err := bed.Announce(bed.LBs[1]); err != nil {
			t.Fatal(err)
		}
		dead, moved := kit.Lost(t, flows, at)
		t.Logf("%s: %d of %d flows died", mode, dead, kit.SingleFlows)
		if moved > 0 || dead > most || most > 0 && dead < kit.SingleFlows/3 {
			t.Errorf("%s: %d of %d flows died, and %d were answered by another server", mode, dead, kit.SingleFlows, moved)
		}
		if n := kit.Counter(t, farm, "recover_presumed", bed.LBs[1]); n < kit.SingleFlows {
			t.Errorf("%s: %d packets went to a presumed owner", mode, n)
		}
	}
}
