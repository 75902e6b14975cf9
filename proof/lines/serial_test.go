package lines_test

import (
	"slices"
	"time"

	"proffer/proof/rig"
)

// What add of insert.h answers.
const (
	added = iota
	linesFull
	exists
)

// may is what can become of a deed only because of what the other CPU does. None of
// it loses a flow that was in the table.
type may uint8

const (
	balk       may = 1 << iota // a change finds its entry moving
	evict                      // an add takes the entry of another embryonic flow
	evictQuiet                 // an add takes the entry of a flow that sent nothing of late
	full                       // an add finds no place: another CPU was faster
	withdraw                   // an add takes what a move leaves again for the flow's entry
	yield                      // an add waits too long for what the other one makes up its mind on
)

// serial returns all ends of the race if each deed takes no time.
func (k *track) serial(may may) map[ended]bool {
	all := map[ended]bool{}
	k.orders(all, ended{left: k.first}, [2]int{}, may)
	return all
}

func (k *track) orders(all map[ended]bool, e ended, begun [2]int, may may) {
	over := true
	for i := range k.do {
		if begun[i] == len(k.do[i]) {
			continue
		}
		over = false
		for _, c := range k.plain(k.do[i][begun[i]], e.left, may) {
			then, next := e, begun
			then.told[i][begun[i]], then.left = c.told, c.left
			next[i]++
			k.orders(all, then, next, may)
		}
	}
	if over {
		all[e] = true
	}
}

// plainly holds the result of a deed and the table it leaves.
type plainly struct {
	told uint64
	left content
}

// plain returns what may come of a deed, by what is known of each flow and nothing
// else.
func (k *track) plain(d deed, c content, may may) (all []plainly) {
	then := func(told uint64) { all = append(all, plainly{told, c}) }
	with := func(told uint64, flow int, word uint64) {
		left := c
		left[flow] = word
		all = append(all, plainly{told, left})
	}
	switch d.call {
	case "flow_find", "flow_seek":
		if k.void(d.flow, c) {
			then(0)
		} else {
			then(c[d.flow])
		}
	case "flow_change":
		if c[d.flow] == d.was {
			with(1, d.flow, d.word)
		}
		if c[d.flow] != d.was || may&balk != 0 {
			then(0)
		}
	case "sweep_flow_line":
		then(0) // it may be in another line by now
		for _, e := range k.has {
			if k.void(e.flow, c) || e.age >= time.Hour && c[e.flow] == e.word {
				with(0, e.flow, 0)
			}
		}
	case "flow_add":
		return k.plainAdd(d, c, may)
	}
	return all
}

func (k *track) plainAdd(d deed, c content, may may) (all []plainly) {
	if c[d.flow] != 0 && !k.void(d.flow, c) {
		all = append(all, plainly{exists, c})
		if may&full != 0 {
			all = append(all, plainly{linesFull, c})
		}
		return all
	}
	left := c
	left[d.flow] = d.word
	all = append(all, plainly{added, left})
	for f, word := range c {
		waits := word != 0 && word&rig.WordEstablished == 0
		if may&evict != 0 && waits || may&evictQuiet != 0 && k.quiet(f, c) {
			without := left
			without[f] = 0
			all = append(all, plainly{added, without})
		}
	}
	if may&full != 0 {
		for _, p := range all[:len(all):len(all)] {
			p.told, p.left[d.flow] = linesFull, c[d.flow] // an embryonic entry may go in vain
			all = append(all, p)
		}
	}
	if may&(yield|withdraw) != 0 {
		all = append(all, plainly{exists, c})
		left[d.flow] = 0 // what was void is gone
		all = append(all, plainly{exists, left})
	}
	return all
}

// quiet reports whether a flow has its entry of before the race, which was old then.
func (k *track) quiet(flow int, c content) bool {
	return slices.ContainsFunc(k.has, func(e entry) bool {
		return e.flow == flow && e.word == c[flow] && e.word&rig.WordEstablished != 0 && e.age > 4*time.Second
	})
}

// void reports whether a flow's entry is embryonic and has waited too long.
func (k *track) void(flow int, c content) bool {
	return slices.ContainsFunc(k.has, func(e entry) bool {
		return e.flow == flow && e.word == c[flow] && e.word&rig.WordEstablished == 0 && e.age >= 10*time.Second
	})
}
