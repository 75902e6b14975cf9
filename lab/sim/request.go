package sim

// request is a flow from its SYN until its LB has forgotten it. Requests live in
// one slice, are named by their index there and are used again.
type Request struct {
	start   int64   // ns, when the client sent its SYN
	opened  int64   // ns, when the SYN reached the LB
	begun   int64   // ns, when a core began with it; 0: none yet
	service float64 // ns of a core of speed 1, all stages
	demand  float64 // ns of service, of the stage that comes next
	io      float64 // Workload.Stages > 1
	second  float64 // Workload.Stages > 2: the CPU stage after the disk
	far     int64   // ns, half the client's round trip
	number  uint32  // the how-manieth request of the run
	lb      int32
	server  int32
	next    int32 // in a station's queue, or in the list of free requests
	bucket  int32 // of the LB's flow table; none: untracked

	list    [maxChoices]int32 // candidates, when the policy hunts
	offered uint8             // how many are in list
	visit   uint8             // which of them has the offer
	least   uint8             // guided: the least metric so far and the position of its server
	leastOf uint8
	report  uint8 // guided: the report of the accepting SYN-ACK or the end
	idle    bool
	alive   bool  // its first data has passed its LB
	noted   uint8 // these three: the policy's own, such as a report
	tag     int32
	note    float64
	arrived int64 // ns, when its server accepted it
	hops    uint8
	stage   uint8
	tries   uint8 // SYNs that were repeated
	phase   phase
	gone    bool // without an answer: lost or reset
}

// phase is how far a request is, for an early end.
type phase uint8

const (
	over      phase = iota // answered, or given up
	opening                // no server has accepted it
	accepting              // its data is on the way to the server
	working                // at the server
	buried                 // lost, and its data is on its way still
)

// requests hands out slots and takes them back.
type requests struct {
	all  []Request
	free int32
}

func (q *requests) take() int32 {
	if q.free == none {
		q.all = append(q.all, Request{})
		return int32(len(q.all) - 1)
	}
	i := q.free
	q.free = q.all[i].next
	return i
}

func (q *requests) give(i int32) {
	q.all[i].next = q.free
	q.free = i
}
