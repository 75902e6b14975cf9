package races_test

import (
	"bytes"
	"net/netip"
	"testing"

	"proffer/proof/rig"
	"proffer/topo"
	"proffer/wire"
)

// either is a frame and the two frames that may leave for it, one for each table.
type either struct {
	frame    []byte
	one, two []byte
}

// eithers are packets of unknown flows to two states of one service, which
// differ in all servers that are asked.
func eithers(r *rig.LB, t testing.TB, flows int, one, two topo.Service) (out []either) {
	t.Helper()
	for i := range flows {
		p := rig.Inward(one.VIP.Port, wire.ACK)
		p.Src = netip.AddrPortFrom(rig.ClientAddr, uint16(rig.ClientPort+i))
		out = append(out, either{
			frame: p.Frame(),
			one:   rig.Recovered(p, rig.Candidates(t, &one, one.Servers, p.Flow())),
			two:   rig.Recovered(p, rig.Candidates(t, &two, two.Servers, p.Flow())),
		})
	}
	return out
}

// whole runs the packets while change is called again and again, at least so
// many times, and checks that each is sent by one table or by the other. What
// ends up in both counts shows that both were met.
func whole(r *rig.LB, t *testing.T, packets []either, times int, change func(i int) error) (ones, twos int) {
	t.Helper()
	ended := make(chan error)
	go func() {
		for i := range times {
			if err := change(i); err != nil {
				ended <- err
				return
			}
		}
		ended <- nil
	}()
	wrong := 0
	for {
		select {
		case err := <-ended:
			if err != nil {
				t.Error(err)
			}
			if wrong > 0 {
				t.Errorf("%d packets of %d were sent by no whole table", wrong, wrong+ones+twos)
			}
			return ones, twos
		default:
		}
		r.ForgetRetries(t)
		for _, p := range packets {
			switch out := r.Run(t, p.frame).Frame; {
			case bytes.Equal(out, p.one):
				ones++
			case bytes.Equal(out, p.two):
				twos++
			default:
				if wrong++; wrong == 1 {
					t.Errorf("no table's:\n got %x\n one %x\n two %x", out, p.one, p.two)
				}
			}
		}
	}
}

func largerTable(s *topo.Service) { s.Buckets = 509 }

// TestApplyAtomic: docs/failures.md, reload under traffic: whatever leaves
// belongs wholly to one of the two tables.
func TestApplyAtomic(t *testing.T) {
	alone := func(upper bool, choices int) topo.Service {
		svc := rig.Lean(upper, choices)
		svc.Servers = svc.Servers[:6]
		if !upper {
			svc.Servers = rig.Farm(12)[6:]
		}
		for i := range svc.Servers {
			svc.Servers[i].Weight = 1
		}
		return svc
	}
	type state []topo.Service
	for name, c := range map[string]struct{ one, two state }{
		"the table":               {state{rig.Lean(false, 2)}, state{rig.Lean(true, 2)}},
		"the table and a choice":  {state{rig.Lean(false, 2)}, state{rig.Lean(true, 3)}},
		"the size of the table":   {state{rig.Lean(false, 2)}, state{rig.Lean(true, 2, largerTable)}},
		"the servers":             {state{alone(false, 2)}, state{alone(true, 2)}},
		"the servers and choices": {state{alone(false, 2)}, state{alone(true, 3)}},
		"two services":            {state{rig.Lean(false, 2), rig.Lean(true, 2, rig.At81)}, state{rig.Lean(true, 3), rig.Lean(false, 3, rig.At81)}},
	} {
		t.Run(name, func(t *testing.T) {
			r := rig.NewLB(t, rig.Hits{}, c.one...)
			r.KnowFarm(t, 12)
			var packets []either
			for i := range c.one {
				packets = append(packets, eithers(r, t, 32, c.one[i], c.two[i])...)
			}
			states := []state{c.two, c.one}
			ones, twos := whole(r, t, packets, 40, func(i int) error { return r.Configure(rig.LBConfig(states[i%2]...)) })
			if ones == 0 || twos == 0 {
				t.Errorf("%d packets by one, %d by the other", ones, twos)
			}
		})
	}
}
