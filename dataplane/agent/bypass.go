package agent

import (
	"fmt"

	"proffer/topo"
)

// unansweredMost is the number of flows that may be accepted without an answer on the way out:
// more in a row show that answers take another way.
const unansweredMost = 8

// silence watches that accepted flows are answered past the program on the way out. The kernel
// answers TCP's by itself, so silence is not the application's.
type silence struct {
	accepted, answered uint64 // when the last answer was seen
}

// Problems lists why packets may pass the agent's programs by.
func (a *Agent) Problems() ([]string, error) {
	found, err := a.Plane.Problems()
	a.mu.Lock()
	if _, none := namespacesOf(a.services); none != nil {
		found = append(found, fmt.Sprintf("sockets are out of sight: %v", none))
	}
	a.mu.Unlock()
	if err != nil || a.TC == nil {
		return found, err
	}
	unanswered, err := a.unanswered()
	if err != nil {
		return nil, err
	}
	if unanswered >= unansweredMost {
		found = append(found, fmt.Sprintf("the last flows that were accepted, at least %d, had no answer on the way out of %s: it leaves by another link, or a program before ours takes it", unansweredMost, a.Dev.Load().Name))
	}
	return found, nil
}

// unanswered is the number of flows accepted since an answer was last seen.
func (a *Agent) unanswered() (uint64, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, s := range a.services {
		if s.VIP.Protocol != topo.TCP {
			return 0, nil // applications may take datagrams and never answer
		}
	}
	counters, err := a.Counters()
	if err != nil {
		return 0, err
	}
	var accepted, answered uint64
	for _, c := range counters {
		switch c.Name {
		case "accept_avail", "accept_force":
			accepted += c.Value
		case "signal_create", "signal_deferred":
			answered += c.Value
		}
	}
	if answered != a.silence.answered {
		a.silence = silence{accepted: accepted, answered: answered}
	}
	return accepted - a.silence.accepted, nil
}
