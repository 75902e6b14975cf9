package table

// filling is a table on its way.
//
// It always ends. A walk meets every bucket once, so no server stands twice in a
// list; and a list with a free position when all walks are over holds every server,
// but lists have no more positions than there are servers.
type filling struct {
	choices uint32
	length  []uint8 // positions taken in each list
	lists   []uint16
	open    int // positions not yet taken
}

func newFilling(m, choices int) *filling {
	return &filling{
		choices: uint32(choices),
		length:  make([]uint8, m),
		lists:   make([]uint16, m*choices),
		open:    m * choices,
	}
}

func (f *filling) table() *Table {
	return &Table{buckets: len(f.length), choices: int(f.choices), lists: f.lists}
}

// take is a turn of a server: it gets the next bucket of its walk with a
// free position in its list. Returns false when its walk is over.
func (f *filling) take(w *walk, server uint16) bool {
	next, left, length := w.next, w.left, f.length
	for left > 0 {
		bucket := next
		next = w.after(next, uint32(len(length)))
		left--
		if n := uint32(length[bucket]); n < f.choices {
			f.lists[bucket*f.choices+n] = server
			length[bucket]++
			f.open--
			w.next, w.left = next, left
			w.took++
			return true
		}
	}
	w.left = 0
	return false
}

// inRounds gives every server a turn a round, as the paper does.
func (f *filling) inRounds(walks []walk, order []uint16) {
	for f.open > 0 {
		for i := range walks {
			f.take(&walks[i], order[i])
			if f.open == 0 {
				return
			}
		}
	}
}

// byWeight gives turn k (from 0) of a server of weight w at time k/w, ties in
// order: stride scheduling (Waldspurger and Weihl, 1995). Alike weights make the
// rounds above; a heap finds the next turn, however far weights lie apart.
func (f *filling) byWeight(walks []walk, order []uint16, servers []Server) {
	turns := make(turns, len(walks))
	for i := range turns {
		turns[i] = uint64(i) // all due at 0, so already a heap
	}
	for f.open > 0 {
		i := turns.first()
		if !f.take(&walks[i], order[i]) {
			turns = turns.drop()
			continue
		}
		turns.postpone(uint64(walks[i].took) << 24 / uint64(servers[order[i]].Weight))
	}
}

// turns is a binary heap of due time · 2^16 + walk: 24 + 24 bits of a time (see
// MaxBuckets) fit above the walk's number, and comparing words breaks ties.
type turns []uint64

func (t turns) first() int { return int(t[0] & 0xffff) }

// postpone gives the first walk its next due time.
func (t turns) postpone(due uint64) {
	t[0] = due<<16 | t[0]&0xffff
	t.sink()
}

// drop removes the first walk.
func (t turns) drop() turns {
	last := len(t) - 1
	t[0] = t[last]
	t[:last].sink()
	return t[:last]
}

func (t turns) sink() {
	for i := 0; ; {
		least := 2*i + 1
		if least >= len(t) {
			return
		}
		if right := least + 1; right < len(t) && t[right] < t[least] {
			least = right
		}
		if t[i] <= t[least] {
			return
		}
		t[i], t[least] = t[least], t[i]
		i = least
	}
}
