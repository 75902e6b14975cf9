package lb

import (
	"errors"
	"fmt"
	"sync/atomic"

	"proffer/dataplane/objects"
)

// mostPasses bounds the passes of a recount: each but the first meets entries that moved meanwhile.
const mostPasses = 16

// Recount counts the flows of all tallies again, while packets flow. Each of its turns
// gives new flows the other colour, and then all entries. The rest in the count of the colour before
// is wrong, and goes. Two turns, for either count. Returns how many were wrong.
func (l *LB) Recount() (wrong int, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for range 2 {
		n, err := l.recountTurn()
		if err != nil {
			return wrong, fmt.Errorf("recount flows: %w", err)
		}
		wrong += n
	}
	for _, number := range l.tallies.number {
		err = errors.Join(err, l.tallies.renewAll(number))
	}
	return wrong, err
}

func (l *LB) recountTurn() (wrong int, err error) {
	for i := range l.tallies.all {
		own := &l.tallies.all[i]
		atomic.StoreUint32(&own.Colour, atomic.LoadUint32(&own.Colour)^1)
	}
	if err := l.slots.wait(); err != nil { // for packets that have read the colour before
		return 0, err
	}
	for pass := 0; ; pass++ {
		swept, err := l.Recolour()
		if err != nil {
			return 0, err
		}
		if swept.Recoloured == 0 {
			break
		}
		if pass == mostPasses {
			return 0, errors.New("entries move all the time")
		}
	}
	if err := l.slots.wait(); err != nil { // for packets between the change of a word and its count
		return 0, err
	}
	for i := range l.tallies.all {
		wrong += correct(&l.tallies.all[i])
	}
	return wrong, nil
}

// correct empties the counts of the colour before, and returns how many were not empty.
func correct(own *objects.LBTally) (wrong int) {
	before := 1 - atomic.LoadUint32(&own.Colour)&1
	for i := range own.Seat {
		count := &own.Seat[i].Count[before]
		if rest := atomic.LoadUint64(count); rest != 0 {
			atomic.AddUint64(count, -rest)
			wrong++
		}
	}
	return wrong
}
