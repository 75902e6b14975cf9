package edge

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"proffer/api"
	"proffer/lab/farmrun"
	"proffer/lab/testbed"
)

// farm is the daemons of an edge on its bed: the LB, and datapath nodes of one core each.
type farm struct {
	bed      *testbed.EdgeBed
	programs string
	lb       lbFile
	daemons  map[*testbed.Node]*testbed.Process
}

// lbFile is the parts of the LB's file that differ.
type lbFile struct {
	balancer string
	services []serviceFile
	weights  []int // of the nodes
	idle     time.Duration
}

// serviceFile is a service: the same chain at every node but for the ports of its NAT.
type serviceFile struct {
	prefix string // of the client network
	cost   time.Duration
	chain  func(node int) []string
}

// reportKey is that of every bed's reports.
const reportKey = "0f0e0d0c0b0a09080706050403020100"

// startFarm writes the files, starts the daemons, and returns when all reach their far ends.
func startFarm(ctx context.Context, bed *testbed.EdgeBed, programs string, lb lbFile) (_ *farm, err error) {
	f := &farm{bed: bed, programs: programs, lb: lb, daemons: map[*testbed.Node]*testbed.Process{}}
	ctx, cancel := context.WithTimeout(ctx, farmrun.ReadyWithin)
	defer cancel()
	defer func() {
		if err != nil {
			err = errors.Join(err, f.stop())
		}
	}()
	if err := f.writeLB(); err != nil {
		return nil, err
	}
	for i := range bed.Nodes {
		if err := f.writeNode(i); err != nil {
			return nil, err
		}
	}
	for _, n := range f.nodes() {
		role := "nf"
		if n == bed.LB {
			role = "edge"
		}
		if f.daemons[n], err = n.Start(context.Background(), programs, role, "--detach", "--config", f.path(n, "yaml")); err != nil {
			return nil, err
		}
	}
	group, ctx := errgroup.WithContext(ctx)
	for _, n := range f.nodes() {
		group.Go(func() error { return f.ready(ctx, n) })
	}
	return f, group.Wait()
}

// nodes are those with a daemon.
func (f *farm) nodes() []*testbed.Node { return append([]*testbed.Node{f.bed.LB}, f.bed.Nodes...) }

// ready returns when a node's daemon reaches its far ends.
func (f *farm) ready(ctx context.Context, n *testbed.Node) error {
	if err := farmrun.Answers(ctx, f.path(n, "sock"), f.daemons[n]); err != nil {
		return err
	}
	for {
		s, err := f.status(ctx, n)
		if err != nil || len(s.NoNextHop) == 0 {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s does not reach %s", n.Name, strings.Join(s.NoNextHop, ", "))
		case <-time.After(5 * time.Millisecond):
		}
	}
}

func (f *farm) path(n *testbed.Node, suffix string) string {
	return filepath.Join(f.bed.Dir, n.Name+"."+suffix)
}

func (f *farm) status(ctx context.Context, n *testbed.Node) (api.Status, error) {
	return api.Ask(ctx, f.path(n, "sock"))
}

// reweigh gives the nodes other weights while packets flow.
func (f *farm) reweigh(weights ...int) error {
	f.lb.weights = weights
	if err := f.writeLB(); err != nil {
		return err
	}
	return f.daemons[f.bed.LB].Signal(unix.SIGHUP)
}

// stop ends the daemons; the bed stays.
func (f *farm) stop() error {
	var group errgroup.Group
	for _, p := range f.daemons {
		group.Go(p.Stop)
	}
	clear(f.daemons)
	return group.Wait()
}

func (f *farm) writeLB() error {
	var text strings.Builder
	fmt.Fprintf(&text, `control: %s
pin: %s
flow_key: "000102030405060708090a0b0c0d0e0f"
report_key: %q
clients: clients
world: world
balancer: %s
public: [%s/32]
flow_table: {idle: %v}
nodes:
`, f.path(f.bed.LB, "sock"), f.bed.LB.Pin(), reportKey, f.lb.balancer, testbed.EdgePublic, f.lb.idle)
	for i, n := range f.bed.Nodes {
		fmt.Fprintf(&text, "  - {name: %s, number: %d, address: %s, link: %s, weight: %d}\n", n.Name, i, testbed.EdgeNodeAddr(i), n.Name, f.lb.weights[i])
	}
	text.WriteString("services:\n")
	for i, s := range f.lb.services {
		fmt.Fprintf(&text, "  - {number: %d, prefixes: [%s], cost: %v}\n", i+1, s.prefix, s.cost)
	}
	return f.write(f.bed.LB, text.String())
}

func (f *farm) writeNode(i int) error {
	n := f.bed.Nodes[i]
	var text strings.Builder
	fmt.Fprintf(&text, `name: %s
control: %s
pin: %s
number: %d
link: lb
lbs: [%s]
clients: [%s]
report_key: %q
chains:
`, n.Name, f.path(n, "sock"), n.Pin(), i, testbed.EdgeLBAddr(i), testbed.EdgeClients, reportKey)
	for k, s := range f.lb.services {
		fmt.Fprintf(&text, "  - service: %d\n    functions: [%s]\n", k+1, strings.Join(s.chain(i), ", "))
	}
	return f.write(n, text.String())
}

func (f *farm) write(n *testbed.Node, text string) error {
	if err := os.WriteFile(f.path(n, "yaml"), []byte(text), 0o600); err != nil {
		return fmt.Errorf("configure %s: %w", n.Name, err)
	}
	return nil
}
