package traffic

import (
	"net/netip"
	"time"
)

// Row is the record of one request. Instants count from the start of the run.
type Row struct {
	ID             int            // its position in the trace, sent as X-Proffer-Id
	From           netip.AddrPort // the client's end of the connection
	Intended       time.Duration  // when it was due
	Started        time.Duration  // when its SYN left
	Connected      time.Duration  // when its SYN-ACK was seen; 0: never
	Done           time.Duration  // when the whole answer was there, or the failure
	Service        time.Duration  // one core's work on it
	Server         string         // the server that answered; empty: none
	Outcome        Outcome
	SYNRetransmits int    // before it was connected
	Hops           int    // servers that saw its offer; filled in by the experiment, else 0
	LB             string // likewise
	Cause          string // why, if Outcome is not OK
}

// Latency counts from the intended start: a generator or a queue that is late
// does not make the farm look fast.
func (r Row) Latency() time.Duration { return r.Done - r.Intended }

// Outcome is how a request ended.
type Outcome string

const (
	OK       Outcome = "ok"
	Reset    Outcome = "reset"   // RST on an open connection
	Refused  Outcome = "refused" // RST in answer to the SYN
	TimedOut Outcome = "timeout"
	Failed   Outcome = "error" // anything else: an answer cut short, a wrong id, no route
)

// Count returns the number of rows of an outcome.
func Count(rows []Row, o Outcome) int {
	n := 0
	for _, r := range rows {
		if r.Outcome == o {
			n++
		}
	}
	return n
}
