package edgesim

// core serves its ring first come, first served. Since nothing is preempted, when
// a packet leaves is known when it comes: the ring holds those instants.
type core struct {
	server  int
	leaves  []int64 // a ring of len
	head    int
	count   int
	free    int64 // ns, when all accepted work is done
	work    int64 // ns, accepted since the start
	taken   uint64
	dropped uint64
}

// at brings the ring to the instant now.
func (c *core) at(now int64) {
	for c.count > 0 && c.leaves[c.head] <= now {
		if c.head++; c.head == len(c.leaves) {
			c.head = 0
		}
		c.count--
	}
}

// offer takes a packet that comes now and returns when it leaves, or drops it.
// cost is its time on an idle core, warm its time on a busy core.
func (c *core) offer(now, cost, warm int64) (leaves int64, ok bool) {
	c.at(now)
	if c.count == len(c.leaves) {
		c.dropped++
		return 0, false
	}
	begins := now
	if c.count > 0 {
		begins, cost = c.free, warm
	}
	c.free = begins + cost
	c.work += cost
	c.taken++
	last := c.head + c.count
	if last >= len(c.leaves) {
		last -= len(c.leaves)
	}
	c.leaves[last] = c.free
	c.count++
	return c.free, true
}

// busy is for how long the core has worked until now.
func (c *core) busy(now int64) int64 { return c.work - max(0, c.free-now) }

// served is how many packets have left until now.
func (c *core) served(now int64) uint64 {
	c.at(now)
	return c.taken - uint64(c.count)
}
