package daemon

import (
	"context"
	"os"
	"os/signal"
	"time"

	"golang.org/x/sys/unix"
)

// drained is a context that ends when the flows have ended after ctx, at the latest by the
// host's time to drain or by another signal.
func (d *daemon) drained(ctx context.Context) (context.Context, context.CancelFunc) {
	if d.host.Drain == 0 {
		return context.WithCancel(ctx)
	}
	after, cancel := context.WithCancel(context.WithoutCancel(ctx))
	go func() {
		defer cancel()
		select {
		case <-after.Done():
			return
		case <-ctx.Done():
		}
		again := make(chan os.Signal, 1)
		signal.Notify(again, os.Interrupt, unix.SIGTERM)
		defer signal.Stop(again)
		d.awaitFlows(after, again)
	}()
	return after, cancel
}

// awaitFlows returns when the table of flows is empty.
func (d *daemon) awaitFlows(ctx context.Context, again <-chan os.Signal) {
	log := d.host.Log
	log.Info("draining: another signal ends it at once", "flows", d.upkeep.Flows(), "at_most", d.host.Drain)
	if d.drain != nil {
		if err := d.drain(); err != nil {
			log.Error("new flows are taken as before", "error", err)
		}
	}
	late, stopLate := d.host.Clock.Tick(d.host.Drain)
	defer stopLate()
	look, stopLook := d.host.Clock.Tick(drainLook)
	defer stopLook()
	for {
		select {
		case <-ctx.Done():
			return
		case <-again:
			return
		case <-late:
			log.Warn("flows are left after the time to drain", "flows", d.upkeep.Flows())
			return
		case <-look:
			if d.upkeep.Flows() == 0 {
				return
			}
		}
	}
}

// drainLook is longer than a sweep of the whole table, which counts the flows.
const drainLook = 6 * time.Second
