package control

import "time"

// ProbeEvery is how often an edge LB probes its nodes, and unanswered how many probes in a row
// a node leaves without an answer until it is down: a second. Any packet of a node answers. Probes are
// counted, not time, so a machine that stalls takes no node out; and so many, that a node that drops
// half of its packets lives.
const (
	ProbeEvery = 50 * time.Millisecond
	unanswered = 20
)

// Silence finds the nodes that answer no probe. One goroutine owns it.
type Silence struct {
	nodes map[int]*probed
}

type probed struct {
	answered uint64 // when the node's last packet came, as the data plane has it
	probes   int    // since then
}

// NewSilence begins without a node that is down.
func NewSilence() *Silence { return &Silence{nodes: map[int]*probed{}} }

// Probed notes that a node is probed again, and when its last answer came. It reports whether the
// node is down.
func (s *Silence) Probed(server int, answered uint64) bool {
	n := s.nodes[server]
	if n == nil {
		n = &probed{answered: answered}
		s.nodes[server] = n
	}
	if n.answered != answered {
		n.answered, n.probes = answered, 0
	}
	n.probes++
	return n.probes > unanswered
}

// Keep forgets the nodes that are not among these.
func (s *Silence) Keep(servers map[int]bool) {
	for server := range s.nodes {
		if !servers[server] {
			delete(s.nodes, server)
		}
	}
}
