package control

import (
	"time"

	"proffer/topo"
)

// A server that gets no new TCP connections cannot show that it answers: it drains, or its services are
// UDP's. So the data plane checks each server that was quiet for a moment; and one without such
// connections, that answered checks and then leaves more than mostMissed of them without an answer, is
// down, if another server gave a sign of life meanwhile: else it is the network, or this machine. Checks are counted, not time,
// so a machine that stalls takes no server out; and so many, that a server that drops a tenth of its
// packets is wrongly down once in a hundred million checks.
const (
	checkEvery = 2 // readings
	quietFor   = 200 * time.Millisecond
	mostMissed = 8
	mostChecks = 64 // at a time
)

// Checks are the servers that the data plane is to check after this reading. The turn after goes on with
// those that this one has no room for.
func (h *Health) Checks(at time.Duration) (list []topo.Server) {
	if h.turn%checkEvery != 0 || len(h.servers) == 0 {
		return nil
	}
	first := h.checked
	for i := range h.servers {
		number := (first + i) % len(h.servers)
		s := h.servers[number]
		if !s.known || at-s.life < quietFor {
			continue
		}
		if len(list) == mostChecks {
			break
		}
		h.checked = number + 1
		s.missed++
		list = append(list, s.Server)
	}
	return list
}

// isOff reports whether a server that answered checks leaves them without an answer while others live.
func (h *Health) isOff(s *observed) bool {
	if len(s.open) > 0 || !s.proved || s.missed <= mostMissed {
		return false
	}
	for _, o := range h.servers {
		if o != s && o.life > s.life+quietFor {
			return true
		}
	}
	return false
}
