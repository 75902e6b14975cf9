package edgesim

import (
	"errors"
	"fmt"
	"time"

	"proffer/weights"
)

// Farm is the datapath nodes. All servers offer the same services.
type Farm struct {
	Servers []Server
	Ring    int // packets that a core holds, the one at work included

	// Warm is the part of a packet's cost that is saved when it finds its core at
	// work: polling is shared in a batch, the code is in the cache. Jitter is the
	// greatest deviation of a packet's cost, as a part of it; all deviations are
	// equally likely.
	Warm, Jitter float64

	// Overload is the average predicted load above which the first spare server
	// joins. 0: none ever does.
	Overload float64

	// LBs is their number, 0 being 1; ECMP spreads the flows over them. If loads are Shared,
	// each LB knows the loads that the others cause, as they were a tick ago.
	LBs    int
	Shared bool
}

// Server is a datapath node.
type Server struct {
	Cores int
	Cost  []time.Duration // of a packet on an idle core, by service
	Spare bool            // takes no flows until it joins
}

// Kind is where the loads come from that weights are made of.
type Kind int

const (
	// Model is EdgeBalance: cost × rate, known to the LB.
	Model Kind = iota
	// Monitor is its variant that asks: each server reports its share of busy
	// time every Period, at an instant of its own, with an error of standard
	// deviation Noise.
	Monitor
	// Static is round robin over the cores.
	Static
)

func (k Kind) String() string { return [...]string{"model", "monitor", "static"}[k] }

// Policy is how new flows are spread.
type Policy struct {
	Kind   Kind
	PID    weights.Gains
	Learns bool    // Model: the Leveller in place of the PID
	Noise  float64 // of a Monitor's reports, in cores
	Random bool    // new flows go at random by the weights, not in turn
}

// Period is the time between two ticks (EdgeBalance §4).
const Period = 30 * time.Millisecond

func (f Farm) check() error {
	if len(f.Servers) == 0 {
		return errors.New("a farm needs a server")
	}
	if f.Ring < 1 {
		return fmt.Errorf("a ring of %d packets: want at least 1", f.Ring)
	}
	if f.Warm < 0 || f.Warm >= 1 || f.Jitter < 0 || f.Jitter >= 1 {
		return fmt.Errorf("warm saving %v and jitter %v: want parts of a cost, from 0 to less than 1", f.Warm, f.Jitter)
	}
	members := 0
	for i, s := range f.Servers {
		if s.Cores < 1 {
			return fmt.Errorf("server %d has %d cores: want at least 1", i, s.Cores)
		}
		if len(s.Cost) == 0 || len(s.Cost) != len(f.Servers[0].Cost) {
			return fmt.Errorf("server %d has costs of %d services: want as many as server 0, and one at least", i, len(s.Cost))
		}
		for k, c := range s.Cost {
			if c <= 0 {
				return fmt.Errorf("service %d costs %v on server %d: want more than 0", k, c, i)
			}
		}
		if !s.Spare {
			members++
		}
	}
	if members == 0 {
		return errors.New("all servers are spare: no server would take the first flow")
	}
	return nil
}
