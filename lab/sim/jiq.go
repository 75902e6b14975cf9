package sim

var _ = Register(Family{
	Name: "jiq", Sees: Everything,
	Names: []Spelling{{Name: "jiq", Means: "join an idle queue", Drawn: "purple solid"}},
	New:   func(e *Engine, _ Policy) any { return newIdle(e) },
})

// idle is jiq (Lu et al., Join-Idle-Queue, 2011): a core that falls idle enters
// its server into the queue of one random LB; an LB takes the first of its
// queue, or any server.
type idle struct {
	*Engine
	queues  []fifo
	reports uint64
	before  []int32 // idle cores of each server when it last changed
}

// fifo is a queue of servers.
type fifo struct {
	list []int32
	head int
}

func newIdle(e *Engine) *idle {
	p := &idle{Engine: e, queues: make([]fifo, e.farm.LBs), before: make([]int32, len(e.servers))}
	for s := range e.servers {
		p.Changed(int32(s))
	}
	return p
}

func (p *idle) Changed(server int32) {
	cores := int32(p.farm.Servers[server].Cores)
	now := max(0, cores-p.servers[server].assigned)
	if !p.in(server) {
		now = 0
	}
	for ; p.before[server] < now; p.before[server]++ {
		p.reports++
		q := &p.queues[below(p.choice.at(^p.reports), len(p.queues))]
		q.list = append(q.list, server)
	}
	p.before[server] = now
}

func (p *idle) Choose(lb int32, r *Request) int32 {
	q := &p.queues[lb]
	for q.head < len(q.list) {
		server := q.list[q.head]
		q.head++
		if q.head*2 > len(q.list) {
			q.list = append(q.list[:0], q.list[q.head:]...)
			q.head = 0
		}
		if p.in(server) {
			return server
		}
	}
	return p.one(r)
}
