package sim

import "math/bits"

// tokens are the idle cores that one LB knows of: of each server as many as it
// reported, at most its cores. The server of the fastest class comes first,
// inside a class the one that reported last.
type tokens struct {
	servers []token
	newest  [256]int32 // of each metric, the server that reported last
	any     [4]uint64  // which metrics have a server
	reports uint64
}

type token struct {
	count, most  int32
	newer, older int32 // inside the metric
	metric       uint8
	reported     uint64 // the how-manieth report
}

func newTokens(farm []Server) *tokens {
	t := &tokens{servers: make([]token, len(farm))}
	for i, s := range farm {
		t.servers[i].most = int32(s.Cores)
	}
	for m := range t.newest {
		t.newest[m] = nobody
	}
	return t
}

// add is an idle report.
func (t *tokens) add(server int32, metric uint8) {
	s := &t.servers[server]
	if s.count > 0 {
		t.unlink(server)
	}
	s.count = min(s.count+1, s.most)
	t.reports++
	s.reported, s.metric = t.reports, metric
	s.newer, s.older = nobody, t.newest[metric]
	if s.older != nobody {
		t.servers[s.older].newer = server
	}
	t.newest[metric] = server
	t.any[metric/64] |= 1 << (metric % 64)
}

// drop is a report that the server is not idle.
func (t *tokens) drop(server int32) {
	if s := &t.servers[server]; s.count > 0 {
		t.unlink(server)
		s.count = 0
	}
}

func (t *tokens) unlink(server int32) {
	s := &t.servers[server]
	if s.newer != nobody {
		t.servers[s.newer].older = s.older
	} else if t.newest[s.metric] = s.older; s.older == nobody {
		t.any[s.metric/64] &^= 1 << (s.metric % 64)
	}
	if s.older != nobody {
		t.servers[s.older].newer = s.newer
	}
}

// take uses up one token and names its server; nobody if there is none.
func (t *tokens) take() int32 {
	fastest := t.fastest()
	if fastest < 0 {
		return nobody
	}
	best := t.newest[fastest]
	for m := fastest + 1; m <= min(fastest+sameClass, 255); m++ {
		if s := t.newest[m]; s != nobody && t.servers[s].reported > t.servers[best].reported {
			best = s
		}
	}
	if s := &t.servers[best]; s.count == 1 {
		t.drop(best)
	} else {
		s.count--
	}
	return best
}

func (t *tokens) fastest() int {
	for i, word := range t.any {
		if word != 0 {
			return 64*i + bits.TrailingZeros64(word)
		}
	}
	return -1
}
