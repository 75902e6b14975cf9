package lb_test

import (
	"fmt"
	"testing"

	"proffer/proof/rig"
	"proffer/topo"
	"proffer/wire"
)

// TestEmptyPool: a service without servers drops its packets, counted; its neighbour does not
// notice, whichever of them is empty, and the pool that is filled again works.
func TestEmptyPool(t *testing.T) {
	r := rig.NewLB(t, rig.Hits{}, rig.Hunting(2, 0), rig.Service(81, topo.Hunt, 2, 3))
	for i, c := range []struct{ first, second int }{{0, 3}, {3, 0}, {0, 0}, {1, 1}, {0, 1}} {
		if i > 0 {
			r.Reconfigure(t, rig.Hunting(2, c.first), rig.Service(81, topo.Hunt, 2, c.second))
		}
		for _, s := range []struct {
			port    uint16
			servers int
		}{{rig.HuntPort, c.first}, {81, c.second}} {
			action, why := uint32(rig.XDPTX), "offer"
			if s.servers == 0 {
				action, why = rig.XDPDrop, "drop_no_server"
			}
			r.Send(t, rig.Inward(s.port, wire.SYN).Frame()).Is(t, fmt.Sprintf("pools %v, port %d", c, s.port), action, nil, why)
		}
	}
	for _, servers := range []int{3, 0} {
		r.Reconfigure(t, rig.Hunting(2, servers, func(s *topo.Service) {
			s.Version, s.History = 2, []topo.Version{{Version: 1}, {Version: 0, Servers: rig.Farm(3)}}
		}))
		action, why := uint32(rig.XDPTX), "recover"
		if servers == 0 {
			action, why = rig.XDPDrop, "drop_no_server"
		}
		r.Send(t, rig.Inward(rig.HuntPort, wire.ACK).Frame()).Is(t, fmt.Sprintf("%d servers after an empty pool", servers), action, nil, why)
	}
}
