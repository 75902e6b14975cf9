package sim

// The policies that know all servers: jsq, and jiq, which is told who is idle.

// shortest is jsq: the fewest requests, those on their way included, whatever
// the server's power. With two choices it is gsq2.
type shortest struct {
	*engine
	two  bool
	load *least
}

func newShortest(e *engine, two bool) *shortest {
	p := &shortest{e, two, newLeast(len(e.servers))}
	for s := range e.servers {
		p.changed(int32(s))
	}
	return p
}

func (p *shortest) changed(server int32) {
	p.load.set(server, float64(p.servers[server].assigned))
}

func (p *shortest) choose(_ int32, r *request) int32 {
	if !p.two {
		return p.load.choose(p.choice.at(uint64(r.number)))
	}
	var list [2]int32
	candidates(list[:], p.flowHash(r), len(p.servers))
	if p.load.key(list[1]) < p.load.key(list[0]) {
		return list[1]
	}
	return list[0]
}

// idle is jiq (Lu et al., Join-Idle-Queue, 2011): a core that falls idle enters
// its server into the queue of one random LB; an LB takes the first of its
// queue, or anybody.
type idle struct {
	*engine
	queues  []fifo
	reports uint64
	before  []int32 // idle cores of each server when it last changed
}

// fifo is a queue of servers.
type fifo struct {
	list []int32
	head int
}

func newIdle(e *engine) *idle {
	p := &idle{engine: e, queues: make([]fifo, e.farm.LBs), before: make([]int32, len(e.servers))}
	for s := range e.servers {
		p.changed(int32(s))
	}
	return p
}

func (p *idle) changed(server int32) {
	cores := int32(p.farm.Servers[server].Cores)
	now := max(0, cores-p.servers[server].assigned)
	for ; p.before[server] < now; p.before[server]++ {
		p.reports++
		q := &p.queues[below(p.choice.at(^p.reports), len(p.queues))]
		q.list = append(q.list, server)
	}
	p.before[server] = now
}

func (p *idle) choose(lb int32, r *request) int32 {
	q := &p.queues[lb]
	if q.head == len(q.list) {
		return int32(below(p.flowHash(r), len(p.servers)))
	}
	server := q.list[q.head]
	q.head++
	if q.head*2 > len(q.list) {
		q.list = append(q.list[:0], q.list[q.head:]...)
		q.head = 0
	}
	return server
}
