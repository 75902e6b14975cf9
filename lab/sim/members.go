package sim

import (
	"fmt"
	"slices"

	"proffer/policy"
	"proffer/table"
)

// The servers that take new flows, and the lists drawn from them by a flow's hash:
// from the table of 6LB (§III-B) if the farm has one, else each server as often as
// its weight. A change of the servers changes the lists that held them, and
// few others.

// members are the servers that take new flows.
type members struct {
	out   []bool       // of each server; nil: all take flows
	down  []bool       // of each server: it has failed
	count int          // of those that take flows
	most  int          // the greatest weight; 0: all are equal
	table *table.Table // nil: no table
}

func (e *Engine) newMembers() error {
	m := &e.members
	least := e.Farm.Servers[0].weight()
	for _, s := range e.Farm.Servers {
		least, m.most = min(least, s.weight()), max(m.most, s.weight())
	}
	if m.most == least {
		m.most = 0
	}
	m.count = len(e.Farm.Servers)
	if len(e.Farm.Events) > 0 {
		m.out, m.down = make([]bool, m.count), make([]bool, m.count)
	}
	for _, s := range e.Farm.absent() {
		m.out[s] = true
		m.count--
	}
	return e.fill()
}

// fill builds the table of the servers that take flows now.
func (e *Engine) fill() error {
	if e.Farm.Table == 0 {
		return nil
	}
	servers := make([]table.Server, len(e.Farm.Servers))
	for i, s := range e.Farm.Servers {
		servers[i].ID = fmt.Sprintf("server%d", i)
		if e.In(int32(i)) {
			servers[i].Weight = uint16(s.weight())
		}
	}
	choices := max(1, e.choices())
	if e.Policy.TwoChoices {
		choices = 2
	}
	t, err := table.Build(servers, e.Farm.Table, choices)
	e.members.table = t
	return err
}

// In reports whether the server takes new flows.
func (e *Engine) In(server int32) bool { return e.members.out == nil || !e.members.out[server] }

// IsDown reports whether the server has failed.
func (e *Engine) IsDown(server int32) bool { return e.members.down != nil && e.members.down[server] }

// draw fills list with different servers that take flows and returns how many
// there are, at least one.
func (e *Engine) draw(list []int32, hash uint64) int {
	m := &e.members
	if m.table != nil {
		bucket := m.table.Lookup(hash)
		n := min(len(list), len(bucket))
		for i := range n {
			list[i] = int32(bucket[i])
		}
		return n
	}
	n := min(len(list), m.count)
	Candidates(list[:n], hash, len(e.Servers))
	if m.out == nil && m.most == 0 {
		return n
	}
	for i := range n {
		e.redraw(list[:i+1], hash)
	}
	return n
}

// patience is how many draws look for a server that takes flows before the list is
// filled in the order of numbers.
const patience = 1 << 12

// redraw replaces the last of the list until it is a server that takes flows, is
// not in the list before, and has the luck that its weight allows.
func (e *Engine) redraw(list []int32, hash uint64) {
	last := len(list) - 1
	word := policy.Mix(hash ^ uint64(list[last]+1)*Golden)
	for try := range uint64(patience) {
		s := list[last]
		if e.In(s) && !slices.Contains(list[:last], s) && Below(word<<32, max(1, e.members.most)) < e.Farm.Servers[s].weight() {
			return
		}
		word = policy.Mix(hash + (MaxChoices+1+uint64(last)*patience+try)*Golden)
		list[last] = int32(word >> 32 * uint64(len(e.Servers)) >> 32)
	}
	for s := range int32(len(e.Servers)) {
		list[last] = s
		if e.In(s) && !slices.Contains(list[:last], s) {
			return
		}
	}
}

// One is the server that the flow's hash leads to.
func (e *Engine) One(r *Request) int32 {
	if m := &e.members; m.table == nil && m.out == nil && m.most == 0 {
		return int32(Below(e.Hash(r), len(e.Servers)))
	}
	var list [1]int32
	e.draw(list[:], e.Hash(r))
	return list[0]
}

// Two draws two servers by the flow's hash, the same one twice if there is but one.
func (e *Engine) Two(r *Request) (first, second int32) { return e.TwoOf(e.Hash(r)) }

func (e *Engine) TwoOf(hash uint64) (first, second int32) {
	var list [2]int32
	if e.draw(list[:], hash) == 1 {
		list[1] = list[0]
	}
	return list[0], list[1]
}
