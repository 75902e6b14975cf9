package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"os/signal"
	"slices"
	"sync/atomic"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"proffer/api"
	"proffer/cmd/internal/cli"
	"proffer/control"
	"proffer/dataplane"
	"proffer/nexthop"
	"proffer/topo"
)

// plane is what lb and agent have in common to run.
type plane interface {
	control.Plane
	Attach() error
	Mode() string
	Adopted() bool
	Unpinned() string
	Counters() ([]dataplane.Counter, error)
	Close() error
}

// daemon runs one loaded plane until ctx ends.
type daemon struct {
	role    string
	node    topo.Node
	plane   plane
	targets []netip.Addr // whose next hops it must always know
	status  func(*api.Status) error
	ready   func() []any                // more to say in the log when ready
	work    func(context.Context) error // more to do meanwhile, or nil
	reload  func() (targets []netip.Addr, err error)

	reloaded, refused atomic.Uint64
	log               *slog.Logger
}

// configFlag adds the flag that every daemon needs.
func configFlag(cmd *cobra.Command, path *string) {
	cmd.Flags().StringVarP(path, "config", "c", "", "configuration `FILE` (YAML; required)")
}

// readConfig reads the file that --config names.
func readConfig(path string) ([]byte, error) {
	if path == "" {
		return nil, cli.BadUsagef("--config FILE is missing: the node's YAML configuration")
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read configuration: %w", err)
	}
	return data, nil
}

// signalKeys reads the signal keys from a file; no file, no keys.
func signalKeys(path string, parse func(string, []byte) ([]topo.SignalKey, error)) ([]topo.SignalKey, error) {
	if path == "" {
		return nil, nil
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read signal keys: %w", err)
	}
	return parse(path, data)
}

// sameNode refuses a reload that changes what the programs were loaded with.
func sameNode(was, is *topo.Node, flows, wanted topo.FlowTable) error {
	switch {
	case was.Name != is.Name:
		return fixed("node.name")
	case was.Locator != is.Locator:
		return fixed("node.locator")
	case was.Interface != is.Interface:
		return fixed("node.interface")
	case was.Pin != is.Pin:
		return fixed("node.pin")
	case !slices.Equal(was.Domain, is.Domain):
		return fixed("node.domain")
	case was.Control != is.Control:
		return fixed("control")
	case flows != wanted:
		return fixed("flow_table")
	}
	return nil
}

func fixed(key string) error {
	return fmt.Errorf("%s cannot change while the daemon runs: restart it", key)
}

func newLogger(w io.Writer) *slog.Logger {
	return slog.New(slog.NewTextHandler(w, nil))
}

// run attaches the plane, answers on the control socket and returns when ctx
// ends or the socket fails. The plane is detached in any case.
func (d *daemon) run(ctx context.Context) (err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	hangup := make(chan os.Signal, 1) // from now on: one that comes early shall not end us
	signal.Notify(hangup, unix.SIGHUP)
	defer signal.Stop(hangup)
	defer func() {
		if closeErr := d.plane.Close(); err == nil && closeErr != nil {
			err = fmt.Errorf("detach: %w", closeErr)
		}
		d.log.Info("detached", "role", d.role)
	}()
	socket, err := api.Listen(d.node.Control)
	if err != nil {
		return err
	}
	hops, err := nexthop.Watch(d.node.Interface)
	if err != nil {
		socket.Close()
		return err
	}
	defer hops.Close()
	upkeep := &control.Controller{Plane: d.plane, Hops: hops, Targets: d.targets, Log: d.log}
	if err := upkeep.Start(ctx); err != nil {
		socket.Close()
		return err
	}
	if err := d.plane.Attach(); err != nil {
		socket.Close()
		return err
	}
	go upkeep.Run(ctx)
	if why := d.plane.Unpinned(); why != "" {
		d.log.Warn("flows will not outlive this process", "reason", why)
	}
	if len(d.node.Keys) == 0 {
		d.log.Warn("signals are not authenticated: `proffer help keys` says how to change that")
	}
	d.log.Info("ready", append([]any{"role", d.role, "node", d.node.Name, "interface", d.node.Interface,
		"xdp", d.plane.Mode(), "adopted", d.plane.Adopted(), "control", d.node.Control}, d.ready()...)...)
	go d.reloads(ctx, hangup, upkeep)
	return d.serve(ctx, socket, upkeep)
}

// reloads applies the configuration again at every SIGHUP; one with a mistake
// changes nothing.
func (d *daemon) reloads(ctx context.Context, hangup <-chan os.Signal, upkeep *control.Controller) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-hangup:
		}
		targets, err := d.reload()
		if err != nil {
			d.refused.Add(1)
			d.log.Error("configuration not reloaded, the old one stays", "error", err)
			continue
		}
		if targets != nil {
			upkeep.SetTargets(targets)
		}
		d.reloaded.Add(1)
		d.log.Info("configuration reloaded")
	}
}

// serve answers questions, and works on what else the role has to do.
func (d *daemon) serve(ctx context.Context, socket net.Listener, upkeep *control.Controller) error {
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error {
		return api.Serve(ctx, socket, func() (api.Status, error) { return d.answer(upkeep) })
	})
	if d.work != nil {
		group.Go(func() error { return d.work(ctx) })
	}
	return group.Wait()
}

// answer describes the daemon now.
func (d *daemon) answer(upkeep *control.Controller) (api.Status, error) {
	s := api.Status{
		Role:      d.role,
		Node:      d.node.Name,
		Locator:   d.node.Locator.String(),
		Interface: d.node.Interface,
		XDP:       d.plane.Mode(),
		PID:       os.Getpid(),
		Adopted:   d.plane.Adopted(),
		Reloads:   d.reloaded.Load(),
		Refused:   d.refused.Load(),
		Flows:     upkeep.Flows(),
		Counters:  map[string]uint64{},
	}
	counters, err := d.plane.Counters()
	if err != nil {
		return s, err
	}
	for _, c := range counters {
		s.Counters[c.Name] = c.Value
	}
	return s, d.status(&s)
}
