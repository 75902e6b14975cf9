package policies

import "proffer/lab/sim"

var _ = sim.Register(sim.Family{
	Name: "jiq", Sees: sim.Everything,
	Names: []sim.Spelling{{Name: "jiq", Means: "join an idle queue", Drawn: "purple solid"}},
	New:   func(e *sim.Engine, _ sim.Policy) any { return newIdle(e) },
})

// idle is jiq (Lu et al., Join-Idle-Queue, 2011): a core that falls idle enters
// its server into the queue of one random LB; an LB takes the first of its
// queue, or any server.
type idle struct {
	*sim.Engine
	queues  []fifo
	reports uint64
	before  []int32 // idle cores of each server when it last changed
}

// fifo is a queue of servers.
type fifo struct {
	list []int32
	head int
}

func newIdle(e *sim.Engine) *idle {
	p := &idle{Engine: e, queues: make([]fifo, e.Farm.LBs), before: make([]int32, len(e.Servers))}
	for s := range e.Servers {
		p.Changed(int32(s))
	}
	return p
}

func (p *idle) Changed(server int32) {
	cores := int32(p.Farm.Servers[server].Cores)
	now := max(0, cores-p.Servers[server].Assigned)
	if !p.In(server) {
		now = 0
	}
	for ; p.before[server] < now; p.before[server]++ {
		p.reports++
		q := &p.queues[sim.Below(p.Choice.At(^p.reports), len(p.queues))]
		q.list = append(q.list, server)
	}
	p.before[server] = now
}

func (p *idle) Choose(lb int32, r *sim.Request) int32 {
	q := &p.queues[lb]
	for q.head < len(q.list) {
		server := q.list[q.head]
		q.head++
		if q.head*2 > len(q.list) {
			q.list = append(q.list[:0], q.list[q.head:]...)
			q.head = 0
		}
		if p.In(server) {
			return server
		}
	}
	return p.One(r)
}
