package edgesim

import (
	"iter"
	"time"
)

// Packet is one of a Traffic.
type Packet struct {
	At    time.Duration
	Class int // of Traffic.Classes
	Flow  int // of the class, from 0 on
}

// Packets are those of a seed in the order of time, as Run meets them: for experiments with real ones.
func (t Traffic) Packets(seed uint64) (iter.Seq[Packet], error) {
	services := 0
	for _, c := range t.Classes {
		services = max(services, c.Service+1)
	}
	if err := t.check(services); err != nil {
		return nil, err
	}
	return func(yield func(Packet) bool) {
		e, flows := &engine{}, make([]int32, len(t.Classes))
		number := map[*source]int{}
		for i, c := range t.Classes {
			s := newSource(c, seed, i)
			e.sources = append(e.sources, s)
			number[s] = i
		}
		for {
			s, at, first := e.next()
			if at > int64(t.For) {
				return
			}
			var p packet
			class := number[s]
			if first {
				p = s.open(0, flows[class]) // no core: the flow's number has its place
				flows[class]++
			} else {
				p = s.pending.pop()
			}
			if !yield(Packet{time.Duration(p.at), class, int(p.core)}) {
				return
			}
			s.later(p)
		}
	}, nil
}
