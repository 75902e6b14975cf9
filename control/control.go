// Package control is the daemons' slow side: it keeps a data plane's next hops,
// flow table and load reports up to date while packets flow past it.
package control

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"sync/atomic"
	"time"

	"proffer/dataplane"
	"proffer/topo"
)

// Plane is the data plane under control.
type Plane interface {
	SetNextHops(topo.NextHops) error
	SweepTurn() (dataplane.Swept, error)
	Unresolved() (netip.Addr, error)
}

// NextHops is where next hops come from.
type NextHops interface {
	Changes() <-chan struct{}
	Read() (hops topo.NextHops, waiting int, err error)
	Resolve(netip.Addr) error
	Refresh([]netip.Addr) error
}

// Page is a program's word on its load.
type Page interface {
	Read() (busy uint32, written time.Duration)
}

// Reporter takes the pages' words, by the number of their service.
type Reporter interface {
	Report(service int, busy uint32, written time.Duration) error
}

const (
	sweepEvery   = time.Second
	refreshEvery = 15 * time.Second
	reportEvery  = time.Millisecond

	resolveWithin = time.Second // what Start waits for neighbours to answer
)

// Controller keeps one data plane.
type Controller struct {
	Plane   Plane
	Hops    NextHops
	Targets []netip.Addr // whose next hops must always be known
	Log     *slog.Logger

	flows   atomic.Uint64
	targets atomic.Pointer[[]netip.Addr] // instead of Targets, once set
}

// SetTargets changes whose next hops must always be known. They are resolved at
// once, or at the next refresh if that fails.
func (c *Controller) SetTargets(addrs []netip.Addr) {
	c.targets.Store(&addrs)
	if err := c.Hops.Refresh(addrs); err != nil {
		c.Log.Warn("some next hops cannot be resolved yet", "error", err)
	}
}

func (c *Controller) wanted() []netip.Addr {
	if t := c.targets.Load(); t != nil {
		return *t
	}
	return c.Targets
}

// Flows is how many entries the last sweep kept.
func (c *Controller) Flows() uint64 { return c.flows.Load() }

// Start brings the next hops in; after it packets can be sent. Neighbours that
// do not answer for a second are left to be found later.
func (c *Controller) Start(ctx context.Context) error {
	if err := c.Hops.Refresh(c.wanted()); err != nil {
		c.Log.Warn("some next hops cannot be resolved yet", "error", err)
	}
	ctx, cancel := context.WithTimeout(ctx, resolveWithin)
	defer cancel()
	for {
		missing, err := c.update()
		if err != nil || missing == 0 {
			return err
		}
		select {
		case <-c.Hops.Changes():
		case <-ctx.Done():
			c.Log.Warn("some next hops do not answer yet", "missing", missing)
			return nil
		}
	}
}

// Run works until ctx ends. Nothing it meets after Start stops the packets, so
// it logs and goes on.
func (c *Controller) Run(ctx context.Context) {
	asked := make(chan netip.Addr)
	go c.listen(ctx, asked)
	sweep := time.NewTicker(sweepEvery)
	defer sweep.Stop()
	refresh := time.NewTicker(refreshEvery)
	defer refresh.Stop()
	for {
		var err error
		select {
		case <-ctx.Done():
			return
		case <-c.Hops.Changes():
			_, err = c.update()
		case addr := <-asked:
			err = c.Hops.Resolve(addr)
		case <-refresh.C:
			err = c.Hops.Refresh(c.wanted())
		case <-sweep.C:
			err = c.sweep()
		}
		if err != nil {
			c.Log.Error("upkeep of the data plane", "error", err)
		}
	}
}

// update copies the next hops and returns how many are not known yet.
func (c *Controller) update() (missing int, err error) {
	hops, missing, err := c.Hops.Read()
	if err != nil {
		return 0, fmt.Errorf("read next hops: %w", err)
	}
	for _, t := range c.wanted() {
		if _, ok := hops.Lookup(t); !ok {
			missing++
		}
	}
	return missing, c.Plane.SetNextHops(hops)
}

func (c *Controller) sweep() error {
	swept, err := c.Plane.SweepTurn()
	if err != nil {
		return err
	}
	c.flows.Store(swept.Kept)
	return nil
}

// listen passes on the addresses that packets could not be sent to.
func (c *Controller) listen(ctx context.Context, asked chan<- netip.Addr) {
	for {
		addr, err := c.Plane.Unresolved()
		if err != nil {
			return // the plane is closed
		}
		select {
		case asked <- addr:
		case <-ctx.Done():
			return
		}
	}
}

// Reports copies what each page says, often enough that an offer meets a fresh
// word, until ctx ends. The keys are the services' numbers.
func Reports(ctx context.Context, pages map[int]Page, to Reporter) error {
	tick := time.NewTicker(reportEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		var errs []error
		for service, page := range pages {
			busy, written := page.Read()
			errs = append(errs, to.Report(service, busy, written))
		}
		if err := errors.Join(errs...); err != nil {
			return err
		}
	}
}
