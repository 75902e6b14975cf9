package sim

// request is a flow from its SYN until its LB has forgotten it. Requests live in
// one slice, are named by their index there and are used again.
type Request struct {
	start   int64   // ns, when the client sent its SYN
	Opened  int64   // ns, when the SYN reached the LB
	Begun   int64   // ns, when a core began with it; 0: none yet
	Service float64 // ns of a core of speed 1, all stages
	Demand  float64 // ns of service, of the stage that comes next
	io      float64 // Workload.Stages > 1
	Second  float64 // Workload.Stages > 2: the CPU stage after the disk
	far     int64   // ns, half the client's round trip
	Number  uint32  // the how-manieth request of the run
	LB      int32
	Server  int32
	Next    int32 // in a station's queue, or in the list of free requests
	bucket  int32 // of the LB's flow table; none: untracked

	List    [MaxChoices]int32 // candidates, when the policy hunts
	Offered uint8             // how many are in list
	Visit   uint8             // which of them has the offer
	Least   uint8             // guided: the least metric so far and the position of its server
	LeastOf uint8
	Report  uint8 // guided: the report of the accepting SYN-ACK or the end
	Idle    bool
	alive   bool  // its first data has passed its LB
	Noted   uint8 // these three: the policy's own, such as a report
	Tag     int32
	Note    float64
	Arrived int64 // ns, when its server accepted it
	hops    uint8
	stage   uint8
	tries   uint8 // SYNs that were repeated
	Phase   phase
	gone    bool // without an answer: lost or reset
}

// phase is how far a request is, for an early end.
type phase uint8

const (
	Over      phase = iota // answered, or given up
	opening                // no server has accepted it
	accepting              // its data is on the way to the server
	working                // at the server
	buried                 // lost, and its data is on its way still
)

// requests hands out slots and takes them back.
type requests struct {
	All  []Request
	free int32
}

func (q *requests) take() int32 {
	if q.free == None {
		q.All = append(q.All, Request{})
		return int32(len(q.All) - 1)
	}
	i := q.free
	q.free = q.All[i].Next
	return i
}

func (q *requests) give(i int32) {
	q.All[i].Next = q.free
	q.free = i
}
