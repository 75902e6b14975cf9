// Package responder has the far ends of traffic: an HTTP server with service times that
// are slept on virtual cores, so that 48 two-core servers fit on two real ones
// (docs/design/testbed.md), echoes for TCP and UDP, and a server of streams.
package responder

// Machine is the capacity of one server.
type Machine struct {
	Cores      int
	Workers    int // requests it has in hand at once; the others wait in order of arrival
	Discipline Discipline
	Speed      float64 // of a core; 0 means 1, at which a request takes its service time
}

// speed is that of a core.
func (m Machine) speed() float64 {
	if m.Speed == 0 {
		return 1
	}
	return m.Speed
}

// Capacity is the service time that it works off in a second, in seconds.
func (m Machine) Capacity() float64 { return m.speed() * float64(m.Cores) }

// Discipline is how the cores are given to the requests in hand.
type Discipline uint8

const (
	Sharing Discipline = iota // processor sharing: n requests run at speed·min(1, cores/n) each
	FIFO                      // at most cores requests run, in order of arrival
)

func (d Discipline) String() string { return [...]string{"sharing", "fifo"}[d] }

// running is the most requests that make progress at once.
func (m Machine) running() int {
	if m.Discipline == FIFO {
		return min(m.Cores, m.Workers)
	}
	return m.Workers
}
