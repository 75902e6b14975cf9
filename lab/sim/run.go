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
	e := NewEngine(f, p, w, seed)
	if e.Fault == nil {
		e.Loop()
	}
	if e.Fault != nil {
		return Result{}, fmt.Errorf("simulate farm %q: %w", f.Name, e.Fault)
	}
	if e.stopped {
		return Result{}, ErrStopped
	}
	if n := e.Result.Open; n > 0 {
		return Result{}, fmt.Errorf("simulate farm %q: policy %s lost %d requests: they are neither answered nor on their way (seed %d)", f.Name, p.Name, n, seed)
	}
	return e.Close(), nil
}

// ErrStopped means that Workload.Watch ended a run.
var ErrStopped = errors.New("the run was stopped")

const DefaultPacketRate = 5

func NewEngine(f Farm, p Policy, w Workload, seed uint64) *Engine {
	e := &Engine{
		Farm: f, Work: w, Policy: p,
		Requests: requests{free: None},
		clock:    NewClock(w.Arrivals, seed),
		service:  NewSampler(w.Service, seed, ServiceStream),
		split:    NewDraws(seed, SplitStream),
		hash:     NewDraws(seed, HashStream),
		hop:      NewDraws(seed, HopStream),
		Choice:   NewDraws(seed, ChoiceStream),
		hopSpan:  uint64(f.HopMax - f.HopMin),
	}
	if w.HasIO() {
		e.io = NewSampler(w.IO, seed, IOStream)
	}
	if !f.ClientRTT.None() {
		e.rtt = NewSampler(f.ClientRTT, seed, RTTStream)
	}
	if w.PacketRate == 0 {
		e.Work.PacketRate = DefaultPacketRate
	}
	e.build()
	e.Fault = e.newMembers()
	e.Result.begin(f, w, seed)
	e.install()
	e.arm()
	e.plan()
	return e
}

// build sets up the servers and their stations.
func (e *Engine) build() {
	n := len(e.Farm.Servers)
	count := n
	if e.Work.HasIO() {
		count = 2 * n
	}
	e.Servers = make([]server, n)
	e.Stations = make([]Station, count)
	e.alarms = NewAlarms(count)
	for i, s := range e.Farm.Servers {
		e.Servers[i].Room = int32(s.Room())
		e.Stations[i] = Station{Speed: s.Pace(), Cores: int32(s.Cores), limit: int32(s.InHand())}
		if count > n { // one disk, shared by all that want it
			e.Stations[n+i] = Station{Speed: 1, Cores: 1, limit: math.MaxInt32}
		}
	}
}

// install makes the policy and finds the interfaces that it has.
func (e *Engine) install() {
	made := families[e.Policy.Base].New(e, e.Policy)
	e.Chooser, _ = made.(Chooser)
	e.Offerer, _ = made.(Offerer)
	e.leader, _ = made.(Leader)
	e.reporter, _ = made.(Reporter)
	e.measure, _ = made.(Gauge)
	e.acceptor, _ = made.(Acceptor)
	e.Track, _ = made.(Tracker)
	e.Life, _ = made.(Establisher)
	e.flooded, _ = made.(Flooded)
	e.Messages, _ = made.(Messenger)
	e.waiter, _ = made.(Waiter)
	e.watch, _ = made.(Watcher)
	e.member, _ = made.(Member)
	e.keeper, _ = made.(Keeper)
	e.signals = e.Offerer != nil || e.reporter != nil
	e.Ends = e.reporter != nil || e.Track != nil
	if e.Track != nil && e.Farm.FlowTable > 0 {
		for range e.Farm.LBs {
			e.tables = append(e.tables, make(flowTable, e.Farm.FlowTable))
		}
	}
}

// arm starts the timers: the policy's, the probe's and those of background work.
func (e *Engine) arm() {
	if e.Work.Probe != nil && e.Work.ProbeEvery > 0 {
		e.Timers = append(e.Timers, timer{int64(e.Work.ProbeEvery), e.newProbe()})
	}
	for i, t := range e.Timers {
		e.Hops.Push(t.every, Ticking, int32(i))
	}
	for i, v := range e.Farm.Events {
		e.Hops.Push(int64(v.At), happening, int32(i))
	}
	e.armRivals()
	e.armFlood()
	for i, b := range e.Farm.Background {
		e.Hops.Push(int64(b.From), shifting, int32(2*i))
		if b.To > 0 {
			e.Hops.Push(int64(b.To), shifting, int32(2*i+1))
		}
	}
}

// leastLeft is the share of a server that background work cannot take, so that
// every request ends.
const leastLeft = 0.01

// shift begins background work (even numbers) or ends it (odd ones).
func (e *Engine) shift(number int) {
	b := e.Farm.Background[number/2]
	taken := b.Cores
	if number%2 == 1 {
		taken = -taken
	}
	for _, i := range b.Servers {
		e.Stations[i].lost += taken
		e.pace(int32(i))
	}
}

// pace gives a server the speed that other work leaves it.
func (e *Engine) pace(server int32) {
	s, f := &e.Stations[server], e.Farm.Servers[server]
	s.Advance(e.Instant)
	s.Speed = f.Pace() * max(leastLeft, 1-s.lost/float64(f.Cores))
	if e.Rival.Share != nil {
		s.Speed *= 1 - e.Rival.Share[server]
	}
	e.alarms.Set(server, s.settle())
	if e.watch != nil {
		e.watch.Changed(server)
	}
}
