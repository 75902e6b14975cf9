package traffic

import (
	"net/netip"
	"slices"
	"time"
)

// Steady returns requests at even intervals, rate (more than 0) a second for so
// long, for Client to send: each asks for no service, so that whatever it waits
// for is not its server. They come from the addresses in turn; without any, the
// kernel chooses.
func Steady(rate float64, duration time.Duration, from ...netip.AddrPort) []Request {
	requests := make([]Request, int(rate*duration.Seconds()))
	for i := range requests {
		requests[i].At = time.Duration(float64(i) / rate * float64(time.Second))
		if len(from) > 0 {
			requests[i].From = from[i%len(from)]
		}
	}
	return requests
}

// Longest is the row that took longest from its intended start to its end,
// however it ended: the longest that any one client was kept waiting.
func (r Result) Longest() (longest Row) {
	for _, row := range r.Rows {
		if row.Latency() >= longest.Latency() {
			longest = row
		}
	}
	return longest
}

// Gap is the longest time without an answer, of the time from the
// first intended start to the last end. Its least is the interval of requests.
func (r Result) Gap() (from, to time.Duration) {
	if len(r.Rows) == 0 {
		return 0, 0
	}
	instants, last := []time.Duration{r.Rows[0].Intended}, time.Duration(0)
	for _, row := range r.Rows {
		last = max(last, row.Done)
		if row.Outcome == OK {
			instants = append(instants, row.Done)
		}
	}
	instants = append(instants, last)
	slices.Sort(instants)
	for i, at := range instants[1:] {
		if at-instants[i] > to-from {
			from, to = instants[i], at
		}
	}
	return from, to
}
