package control

import (
	"bytes"
	"errors"
	"log/slog"
	"maps"
	"net"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"time"

	"proffer/dataplane"
	"proffer/topo"
)

// bench is a data plane and a source of next hops that a test plays with.
type bench struct {
	mu        sync.Mutex
	hops      topo.NextHops // the kernel's
	waiting   topo.Waiting
	fails     map[string]error // by method
	set       []topo.NextHops  // given to the plane
	resolved  []netip.Addr
	refreshed int
	targets   []netip.Addr // of the last refresh
	sweeps    []time.Time
	suspects  []dataplane.Suspect
	change    string // of the link, not followed yet
	problems  []string

	changes chan struct{}
	lost    chan netip.Addr
	log     bytes.Buffer
}

func newBench(t *testing.T) (*bench, *Controller) {
	t.Helper()
	b := &bench{hops: topo.NextHops{}, fails: map[string]error{}, changes: make(chan struct{}, 1), lost: make(chan netip.Addr)}
	log := slog.New(slog.NewTextHandler(&locked{b: b}, nil))
	c := New(b, func(string) (NextHops, error) { return b, nil }, Ways{"eth0": {server}}, bubble{}, log)
	if err := c.watchAll(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return b, c
}

func (b *bench) Link(name string) *net.Interface { return &net.Interface{Index: 1, Name: name} }

func (b *bench) Close() {}

// bubble is the time of a synctest bubble.
type bubble struct{}

func (bubble) Now() time.Duration { return time.Duration(time.Now().UnixNano()) }

func (bubble) Tick(period time.Duration) (<-chan time.Time, func()) {
	t := time.NewTicker(period)
	return t.C, t.Stop
}

// locked lets the log be read while it is written.
type locked struct{ b *bench }

func (l *locked) Write(p []byte) (int, error) {
	l.b.mu.Lock()
	defer l.b.mu.Unlock()
	return l.b.log.Write(p)
}

func (b *bench) logged() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.log.String()
}

// learn is a change in the kernel.
func (b *bench) learn(addr netip.Addr) {
	b.mu.Lock()
	b.hops[netip.PrefixFrom(addr, 64)] = router
	b.mu.Unlock()
	b.changes <- struct{}{}
}

func (b *bench) Reach(_ string, h topo.NextHops) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.set = append(b.set, h)
	return b.fails["Reach"]
}

func (b *bench) SweepTurn() (dataplane.Swept, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.sweeps = append(b.sweeps, time.Now())
	return dataplane.Swept{Kept: uint64(len(b.sweeps))}, b.fails["SweepTurn"]
}

func (b *bench) Follow() (string, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	change := b.change
	b.change = ""
	return change, b.fails["Follow"]
}

func (b *bench) Suspects() ([]dataplane.Suspect, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.suspects), b.fails["Suspects"]
}

func (b *bench) Problems() ([]string, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.problems), b.fails["Problems"]
}

func (b *bench) Unresolved() (netip.Addr, error) {
	addr, open := <-b.lost
	if !open {
		return addr, errors.New("closed")
	}
	return addr, nil
}

func (b *bench) Changes() <-chan struct{} { return b.changes }

func (b *bench) Read() (topo.NextHops, topo.Waiting, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return maps.Clone(b.hops), maps.Clone(b.waiting), b.fails["Read"]
}

func (b *bench) Resolve(addr netip.Addr) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.resolved = append(b.resolved, addr)
	return b.fails["Resolve"]
}

func (b *bench) Refresh(targets []netip.Addr) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.refreshed++
	b.targets = targets
	return b.fails["Refresh"]
}

// given returns the last next hops that the plane got, and how often it got any.
func (b *bench) given() (topo.NextHops, int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.set) == 0 {
		return nil, 0
	}
	return b.set[len(b.set)-1], len(b.set)
}

// with changes the bench beside its controller.
func (b *bench) with(change func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	change()
}
