// Package farmrun is what experiments share: the real daemons on a testbed farm, traffic through
// them, the servers' loads meanwhile, and rows of what came of it.
package farmrun

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"proffer/api"
	"proffer/lab/testbed"
	"proffer/policy"
	"proffer/table"
	"proffer/topo"
)

const (
	// Backlog is the papers' listen backlog.
	Backlog = 128
	// ReadyWithin bounds the start of a daemon.
	ReadyWithin = time.Minute
)

// Farm is a testbed with the daemons running on it.
type Farm struct {
	Bed      *testbed.Bed
	Service  topo.Service
	settings Settings
	daemons  map[*testbed.Node]*testbed.Process
	table    *table.Table // of Service, once asked for
}

// Start runs the LBs and an agent a server on bed, and returns when all answer.
func Start(ctx context.Context, bed *testbed.Bed, s Settings) (*Farm, error) {
	f := &Farm{Bed: bed, Service: service(bed, s), settings: s, daemons: map[*testbed.Node]*testbed.Process{}}
	ctx, cancel := context.WithTimeout(ctx, ReadyWithin)
	defer cancel()
	nodes, err := f.daemonNodes()
	if err == nil {
		err = f.start(nodes...)
	}
	if err == nil {
		err = f.ready(ctx, nodes...)
	}
	if err != nil {
		return nil, errors.Join(err, f.Stop())
	}
	return f, nil
}

// daemonNodes are the nodes that have daemons; the kernels of the others are set up.
func (f *Farm) daemonNodes() ([]*testbed.Node, error) {
	if !f.settings.NoAgents {
		return slices.Concat(f.Bed.LBs, f.Bed.Servers), nil
	}
	for _, n := range f.Bed.Servers {
		if err := f.Bed.Agentless(n, testbed.DT6); err != nil {
			return nil, err
		}
	}
	return f.Bed.LBs, nil
}

// start runs the daemons of nodes, with fresh configurations.
func (f *Farm) start(nodes ...*testbed.Node) error {
	for _, n := range nodes {
		role, err := f.configure(n)
		if err != nil {
			return err
		}
		args := []string{role, "--config", f.path(n, "yaml")}
		if !f.settings.Lasting {
			args = append(args, "--detach")
		}
		p, err := n.Start(context.Background(), f.settings.Programs, args...)
		if err != nil {
			return fmt.Errorf("start %s on %s: %w", role, n.Name, err)
		}
		f.daemons[n] = p
	}
	return nil
}

// ready returns when the nodes' daemons answer, or with the log of one that ended.
func (f *Farm) ready(ctx context.Context, nodes ...*testbed.Node) error {
	group, ctx := errgroup.WithContext(ctx)
	for _, n := range nodes {
		group.Go(func() error { return Answers(ctx, f.control(n), f.daemons[n]) })
	}
	return group.Wait()
}

// Launch starts the daemon of a node, after the last daemon has ended, and returns when
// it answers.
func (f *Farm) Launch(ctx context.Context, n *testbed.Node) error {
	ctx, cancel := context.WithTimeout(ctx, ReadyWithin)
	defer cancel()
	if err := f.start(n); err != nil {
		return err
	}
	return f.ready(ctx, n)
}

// Reload configures a node's daemon again and returns when it has applied that.
func (f *Farm) Reload(ctx context.Context, n *testbed.Node) error {
	ctx, cancel := context.WithTimeout(ctx, ReadyWithin)
	defer cancel()
	before, err := f.Status(ctx, n)
	if err != nil {
		return err
	}
	if _, err := f.configure(n); err != nil {
		return err
	}
	if err := f.daemons[n].Signal(unix.SIGHUP); err != nil {
		return fmt.Errorf("reload %s: %w", n.Name, err)
	}
	for {
		s, err := f.Status(ctx, n)
		switch {
		case err != nil:
			return err
		case s.Refused > before.Refused:
			return fmt.Errorf("%s: %s", n.Name, s.NotReloaded)
		case s.Reloads > before.Reloads:
			return nil
		}
		time.Sleep(time.Millisecond)
	}
}

func Answers(ctx context.Context, control string, p *testbed.Process) error {
	for {
		if _, err := api.Ask(ctx, control); err == nil {
			return nil
		}
		select {
		case <-p.Done():
			return fmt.Errorf("%s ended: %s", p.Name, p.Log())
		case <-ctx.Done():
			return fmt.Errorf("%s does not answer: %w: %s", p.Name, ctx.Err(), p.Log())
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// Status asks the daemon of a node.
func (f *Farm) Status(ctx context.Context, n *testbed.Node) (api.Status, error) {
	return api.Ask(ctx, f.control(n))
}

// Count adds up one counter over nodes.
func (f *Farm) Count(ctx context.Context, nodes []*testbed.Node, counter string) (uint64, error) {
	var sum uint64
	for _, n := range nodes {
		s, err := f.Status(ctx, n)
		if err != nil {
			return 0, err
		}
		value, ok := s.Counters[counter]
		if !ok {
			return 0, fmt.Errorf("%s has no counter %q", n.Name, counter)
		}
		sum += value
	}
	return sum, nil
}

// Daemon returns the process that runs on a node.
func (f *Farm) Daemon(n *testbed.Node) *testbed.Process { return f.daemons[n] }

// Stop ends the daemons; the bed stays.
func (f *Farm) Stop() error {
	var group errgroup.Group
	for _, p := range f.daemons {
		group.Go(p.Stop)
	}
	clear(f.daemons)
	return group.Wait()
}

// Candidates lists the servers that a client's flow is offered to, in order, as
// places in f.Service.Servers.
func (f *Farm) Candidates(flow policy.Flow) ([]uint16, error) {
	if f.table == nil {
		var err error
		if f.table, err = table.Of(&f.Service, f.Service.Servers); err != nil {
			return nil, err
		}
	}
	return f.table.Lookup(candidateDigest.Digest(flow)), nil
}
