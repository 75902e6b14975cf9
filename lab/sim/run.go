package sim

import (
	"errors"
	"fmt"
	"math"
)

// Run plays the workload on the farm under the policy. The same arguments give
// the same Result on any machine, and all policies of one seed meet the same
// requests. It uses one core; runs share nothing.
func Run(f Farm, p Policy, w Workload, seed uint64) (Result, error) {
	if err := check(f, p, w); err != nil {
		return Result{}, err
	}
	e := newEngine(f, p, w, seed)
	if e.fault == nil {
		e.loop()
	}
	if e.fault != nil {
		return Result{}, fmt.Errorf("simulate farm %q: %w", f.Name, e.fault)
	}
	if e.stopped {
		return Result{}, ErrStopped
	}
	if n := e.result.open; n > 0 {
		return Result{}, fmt.Errorf("simulate farm %q: policy %s lost %d requests: they are neither answered nor on their way (seed %d)", f.Name, p.Name, n, seed)
	}
	return e.close(), nil
}

// ErrStopped means that Workload.Watch ended a run.
var ErrStopped = errors.New("the run was stopped")

const defaultPacketRate = 5

func newEngine(f Farm, p Policy, w Workload, seed uint64) *Engine {
	e := &Engine{
		farm: f, work: w, policy: p,
		requests: requests{free: none},
		clock:    newClock(w.Arrivals, seed),
		service:  newSampler(w.Service, seed, serviceStream),
		split:    newDraws(seed, splitStream),
		hash:     newDraws(seed, hashStream),
		hop:      newDraws(seed, hopStream),
		choice:   newDraws(seed, choiceStream),
		hopSpan:  uint64(f.HopMax - f.HopMin),
	}
	if w.hasIO() {
		e.io = newSampler(w.IO, seed, ioStream)
	}
	if !f.ClientRTT.none() {
		e.rtt = newSampler(f.ClientRTT, seed, rttStream)
	}
	if w.PacketRate == 0 {
		e.work.PacketRate = defaultPacketRate
	}
	e.build()
	e.fault = e.newMembers()
	e.result.begin(f, w, seed)
	e.install()
	e.arm()
	e.plan()
	return e
}

// build sets up the servers and their stations.
func (e *Engine) build() {
	n := len(e.farm.Servers)
	count := n
	if e.work.hasIO() {
		count = 2 * n
	}
	e.servers = make([]server, n)
	e.stations = make([]station, count)
	e.alarms = newAlarms(count)
	for i, s := range e.farm.Servers {
		e.servers[i].room = int32(s.room())
		e.stations[i] = station{speed: s.speed(), cores: int32(s.Cores), limit: int32(s.inHand())}
		if count > n { // one disk, shared by all that want it
			e.stations[n+i] = station{speed: 1, cores: 1, limit: math.MaxInt32}
		}
	}
}

// install makes the policy and finds the interfaces that it has.
func (e *Engine) install() {
	made := families[e.policy.Base].New(e, e.policy)
	e.chooser, _ = made.(Chooser)
	e.offerer, _ = made.(Offerer)
	e.leader, _ = made.(Leader)
	e.reporter, _ = made.(Reporter)
	e.measure, _ = made.(Gauge)
	e.acceptor, _ = made.(Acceptor)
	e.track, _ = made.(Tracker)
	e.life, _ = made.(Establisher)
	e.flooded, _ = made.(Flooded)
	e.messages, _ = made.(Messenger)
	e.waiter, _ = made.(Waiter)
	e.watch, _ = made.(Watcher)
	e.member, _ = made.(Member)
	e.keeper, _ = made.(Keeper)
	e.signals = e.offerer != nil || e.reporter != nil
	e.ends = e.reporter != nil || e.track != nil
	if e.track != nil && e.farm.FlowTable > 0 {
		for range e.farm.LBs {
			e.tables = append(e.tables, make(flowTable, e.farm.FlowTable))
		}
	}
}

// arm starts the timers: the policy's, the probe's and those of background work.
func (e *Engine) arm() {
	if e.work.Probe != nil && e.work.ProbeEvery > 0 {
		e.timers = append(e.timers, timer{int64(e.work.ProbeEvery), e.newProbe()})
	}
	for i, t := range e.timers {
		e.hops.push(t.every, ticking, int32(i))
	}
	for i, v := range e.farm.Events {
		e.hops.push(int64(v.At), happening, int32(i))
	}
	e.armRivals()
	e.armFlood()
	for i, b := range e.farm.Background {
		e.hops.push(int64(b.From), shifting, int32(2*i))
		if b.To > 0 {
			e.hops.push(int64(b.To), shifting, int32(2*i+1))
		}
	}
}

// leastLeft is the share of a server that background work cannot take, so that
// every request ends.
const leastLeft = 0.01

// shift begins background work (even numbers) or ends it (odd ones).
func (e *Engine) shift(number int) {
	b := e.farm.Background[number/2]
	taken := b.Cores
	if number%2 == 1 {
		taken = -taken
	}
	for _, i := range b.Servers {
		e.stations[i].lost += taken
		e.pace(int32(i))
	}
}

// pace gives a server the speed that other work leaves it.
func (e *Engine) pace(server int32) {
	s, f := &e.stations[server], e.farm.Servers[server]
	s.advance(e.now)
	s.speed = f.speed() * max(leastLeft, 1-s.lost/float64(f.Cores))
	if e.rival.share != nil {
		s.speed *= 1 - e.rival.share[server]
	}
	e.alarms.set(server, s.settle())
	if e.watch != nil {
		e.watch.Changed(server)
	}
}
