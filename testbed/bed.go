// Package testbed builds a whole farm on one machine, so that experiments and
// end-to-end tests drive the real data plane with real TCP (SRLB §V, 6LB §VI
// ran the same star on a rack): network namespaces for a client, an edge
// router, the LB and N servers, joined by veth around the router.
//
//	client ──(delay box)── router ──┬── lb1
//	                                ├── s1
//	                                └── s2 …
//
// Everything a bed made disappears with Close, and what a killed run left
// behind disappears with the next Up. Nothing but the kernel is needed: no
// program is executed to build a bed.
package testbed

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"runtime"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
)

const (
	defaultClients = 4
	lbs            = 1
)

// Config says what to build; the zero value of every field but Servers works.
type Config struct {
	Servers int           // 1 to MaxServers
	Clients int           // addresses of the client; 0 means 4
	Delay   time.Duration // one way, between client and router in each direction; 0 = no delay box
}

// Bed is a running testbed. Its methods may be called from any goroutine.
type Bed struct {
	Run     string // names this bed on the machine; part of every namespace's name
	Dir     string // for configurations, sockets and logs; removed by Close
	Client  *Node
	Router  *Node
	LBs     []*Node
	Servers []*Node

	VIP         netip.Addr
	ClientAddrs []netip.Addr

	state   *os.File // holds the lock that says the run is alive
	pass    *os.File // an XDP program, while the bed is being built
	box     *delayBox
	delayNS *Node
	spawner *spawner
	close   sync.Once
	closed  error
}

// Up builds a bed, after removing what killed runs left behind. When it fails
// or ctx ends before it is done, nothing is left of the bed. Once it returns,
// ctx has no say any more: the caller closes the bed.
func Up(ctx context.Context, c Config) (bed *Bed, err error) {
	if err := c.validate(); err != nil {
		return nil, err
	}
	if err := able(); err != nil {
		return nil, err
	}
	if _, err := Reap(); err != nil {
		return nil, err
	}
	b, err := newBed(c)
	if err != nil {
		return nil, err
	}
	defer func() { // runs in a panic, too
		if bed == nil {
			err = errors.Join(err, b.Close())
		}
	}()
	if err := b.build(ctx, c); err != nil {
		return nil, explain(err)
	}
	return b, nil
}

// newBed claims a run and plans its nodes; nothing is built yet.
func newBed(c Config) (*Bed, error) {
	state, run, err := claim()
	if err != nil {
		return nil, err
	}
	if c.Clients == 0 {
		c.Clients = defaultClients
	}
	b := &Bed{
		Run:     run,
		Dir:     state.Name(),
		VIP:     netip.MustParseAddr(VIP),
		state:   state,
		spawner: newSpawner(),
	}
	for k := range c.Clients {
		b.ClientAddrs = append(b.ClientAddrs, ClientAddr(k+1))
	}
	b.Router = b.node("router")
	planRouter(b.Router)
	b.Client = b.node("client")
	planClient(b.Client, b.ClientAddrs)
	for j := range lbs {
		b.LBs = append(b.LBs, b.node(fmt.Sprintf("lb%d", j+1)))
		planLB(b.LBs[j], j+1)
	}
	for i := range c.Servers {
		b.Servers = append(b.Servers, b.node(fmt.Sprintf("s%d", i+1)))
		planServer(b.Servers[i], i+1)
	}
	if c.Delay > 0 {
		b.delayNS = b.node("delay")
		b.delayNS.plan.sysctls = []sysctl{ // it forwards frames and must not speak itself
			{"net/ipv6/conf/all/disable_ipv6", "1"},
			{"net/ipv6/conf/default/disable_ipv6", "1"},
		}
	}
	return b, nil
}

func (b *Bed) node(name string) *Node {
	return &Node{Name: name, Namespace: namespacePrefix(b.Run) + name, Link: name, bed: b}
}

// Nodes returns every node of the star but the router, the client first.
func (b *Bed) Nodes() []*Node {
	nodes := append([]*Node{b.Client}, b.LBs...)
	return append(nodes, b.Servers...)
}

// build makes all namespaces, then lays all links, each as parallel as the
// kernel's locks allow.
func (b *Bed) build(ctx context.Context, c Config) error {
	if err := shareNamespaceDir(); err != nil {
		return err
	}
	nodes := append(b.Nodes(), b.Router)
	if b.delayNS != nil {
		nodes = append(nodes, b.delayNS)
	}
	defer func() {
		for _, n := range nodes {
			n.space.close()
		}
		b.pass.Close()
	}()
	var err error
	if b.pass, err = loadPass(); err != nil {
		return err
	}
	if err := each(ctx, nodes, (*Node).create); err != nil {
		return err
	}
	if b.delayNS != nil {
		if err := b.layDelay(c.Delay); err != nil {
			return err
		}
	}
	return each(ctx, b.Nodes(), b.wire)
}

// each calls f for all nodes, some at a time, until one fails or ctx ends.
func each(ctx context.Context, nodes []*Node, f func(*Node) error) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(4 * runtime.NumCPU())
	for _, n := range nodes {
		group.Go(func() error {
			if err := ctx.Err(); err != nil {
				return fmt.Errorf("testbed: interrupted: %w", err)
			}
			if err := f(n); err != nil {
				return fmt.Errorf("testbed: %s: %w", n.Name, err)
			}
			return nil
		})
	}
	return group.Wait()
}

// DelayDrops counts the frames that the delay box had no room for or could
// not send.
func (b *Bed) DelayDrops() uint64 {
	if b.box == nil {
		return 0
	}
	return b.box.drops()
}

// Close ends every process in the bed and removes all that Up made. Only the
// first call does anything; all return what it met.
func (b *Bed) Close() error {
	b.close.Do(func() {
		deadline := time.Now().Add(grace) // for children of children, too
		errs := []error{b.spawner.stopAll()}
		errs = append(errs, endStrays(b.Run, time.Until(deadline)))
		if b.box != nil {
			b.box.close()
		}
		errs = append(errs, removeRun(b.Run), b.state.Close())
		b.closed = errors.Join(errs...)
	})
	return b.closed
}
