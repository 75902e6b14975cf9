// Package testbed builds a whole farm on one machine, so that experiments and
// end-to-end tests drive the real data plane with real TCP (SRLB §V, 6LB §VI
// ran the same star on a rack): network namespaces for a client, an edge
// router, LBs and N servers, joined by veth around the router.
//
//	client ──(delay box)── edge router ──┬── lb1 …
//	                                     ├── s1 …  ── (s1-app)
//	                                     └── t1 …
//
// The network may be hostile: it loses frames, its LBs die and come back, its
// path to the client is narrow, its servers know no agent.
//
// Everything a bed made disappears with Close, and the remains of a killed run
// disappear with the next Up. Nothing but the kernel is needed: no
// program is executed to build a bed.
package testbed

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"
)

const defaultClients = 4

var errClosed = errors.New("the testbed is closed")

// Config describes the bed; the zero value of every field but Servers works.
type Config struct {
	Servers   int     // 1 to MaxServers
	LBs       int     // to MaxLBs; 0 means 1. All are announced
	Transits  int     // to MaxTransits: SRv6 endpoints with the kernel as their only software
	Clients   int     // addresses of the client; 0 means 4. In IPv4 it has as many, to MaxClients4
	Delay     Delay   // one way, between client and router in each direction
	ClientMTU int     // bytes, of the router's route to the client, 1280 to MTU; 0 means MTU
	Loss      float64 // probability, 0 to 0.5: see SetLoss
	OpenEdge  bool    // the router lets SRv6 in from the client
}

// Bed is a running testbed. Its methods may be called from any goroutine.
type Bed struct {
	Run      string // names this bed on the machine; part of every namespace's name
	Dir      string // for configurations, sockets and logs; removed by Close
	Client   *Node
	Router   *Node
	LBs      []*Node
	Servers  []*Node
	Transits []*Node

	VIP, VIP4    netip.Addr
	ClientAddrs  []netip.Addr
	ClientAddrs4 []netip.Addr

	state    *os.File // holds the lock of a live run
	programs programs // that the router's interfaces may carry
	fresh    fresh    // sysctls
	box      *delayBox
	delayNS  *Node
	spawner  *spawner
	close    sync.Once
	closed   error

	mu        sync.Mutex // held by methods that change the bed while it runs; guards the rest
	announced []*Node    // the next hops to the VIPs
	lossy     bool       // every link has the losing programs
	over      bool       // closed
}

// Up builds a bed, after removing the remains of killed runs. When it fails
// or ctx ends before it is done, nothing is left of the bed. Once it returns,
// ctx has no effect any more: the caller closes the bed.
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
	b, err := newBed(c.filled())
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

// filled is the configuration with its defaults spelt out.
func (c Config) filled() Config {
	if c.Clients == 0 {
		c.Clients = defaultClients
	}
	if c.LBs == 0 {
		c.LBs = 1
	}
	return c
}

// newBed claims a run and plans its nodes; nothing is built yet.
func newBed(c Config) (*Bed, error) {
	state, run, err := claim()
	if err != nil {
		return nil, err
	}
	b := &Bed{
		Run:     run,
		Dir:     state.Name(),
		VIP:     netip.MustParseAddr(VIP),
		VIP4:    netip.MustParseAddr(VIP4),
		state:   state,
		spawner: newSpawner(),
	}
	b.plan(c)
	return b, nil
}

// plan names and numbers the nodes.
func (b *Bed) plan(c Config) {
	for k := range c.Clients {
		b.ClientAddrs = append(b.ClientAddrs, ClientAddr(k+1))
	}
	for k := range min(c.Clients, MaxClients4) {
		b.ClientAddrs4 = append(b.ClientAddrs4, ClientAddr4(k+1))
	}
	b.Router = b.node("router")
	planRouter(b.Router)
	b.Client = b.node("client")
	planClient(b.Client, b.ClientAddrs, b.ClientAddrs4, c.ClientMTU)
	b.LBs = b.nodes(c.LBs, "lb", planLB)
	b.Servers = b.nodes(c.Servers, "s", planServer)
	b.Transits = b.nodes(c.Transits, "t", planTransit)
	if c.Delay.Mean > 0 {
		b.delayNS = b.node("delay")
		b.delayNS.plan.sysctls = []sysctl{ // it forwards frames and must not speak itself
			{"net/ipv6/conf/all/disable_ipv6", "1"},
			{"net/ipv6/conf/default/disable_ipv6", "1"},
		}
	}
}

func (b *Bed) nodes(count int, kind string, plan func(*Node, int)) (nodes []*Node) {
	for i := range count {
		n := b.node(fmt.Sprintf("%s%d", kind, i+1))
		plan(n, i+1)
		nodes = append(nodes, n)
	}
	return nodes
}

func (b *Bed) node(name string) *Node {
	return &Node{Name: name, Namespace: namespacePrefix(b.Run) + name, Link: name, bed: b}
}

// Nodes returns every node of the star but the router, the client first, the
// dead ones included.
func (b *Bed) Nodes() []*Node {
	return slices.Concat([]*Node{b.Client}, b.LBs, b.Servers, b.Transits)
}

// build makes all namespaces, then lays all links, each as parallel as the
// kernel's locks allow. The router's space stays open until the bed closes.
func (b *Bed) build(ctx context.Context, c Config) error {
	if err := shareNamespaceDir(); err != nil {
		return err
	}
	if err := makePins(b.Run); err != nil {
		return err
	}
	if err := b.programs.load(); err != nil {
		return wrap("testbed", err)
	}
	hosts := b.Nodes()
	if b.delayNS != nil {
		hosts = append(hosts, b.delayNS)
	}
	defer shut(hosts)
	if err := each(ctx, append(hosts, b.Router), (*Node).create); err != nil {
		return err
	}
	if b.delayNS != nil {
		if err := b.layDelay(c.Delay); err != nil {
			return err
		}
	}
	if err := each(ctx, b.Nodes(), b.wire); err != nil {
		return err
	}
	if !c.OpenEdge {
		if err := b.guard(); err != nil {
			return err
		}
	}
	if err := b.announce(b.LBs); err != nil {
		return err
	}
	return b.setLoss(c.Loss)
}

// shut closes the nodes that create opened.
func shut(nodes []*Node) {
	for _, n := range nodes {
		n.space.close()
	}
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

// DelayLate is how long after their time the delay box has sent frames, on average.
func (b *Bed) DelayLate() time.Duration {
	if b.box == nil {
		return 0
	}
	return b.box.late()
}

// Close ends every process in the bed and removes all that Up made. Only the
// first call has an effect; all calls return its error.
func (b *Bed) Close() error {
	b.close.Do(func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.over = true
		deadline := time.Now().Add(grace) // for children of children, too
		errs := []error{b.spawner.stopAll()}
		errs = append(errs, endDisplaced(b.Run, time.Until(deadline)))
		if b.box != nil {
			b.box.close()
		}
		if b.Router != nil {
			b.Router.space.close()
		}
		errs = append(errs, b.programs.close())
		errs = append(errs, removeRun(b.Run), b.state.Close())
		b.closed = errors.Join(errs...)
	})
	return b.closed
}

// Announce makes exactly these LBs the next hops of both VIPs on the router,
// as if each spoke BGP to it; with none the router knows no way and answers that.
// The kernel spreads flows by the hash of addresses, protocol and ports.
//
// The route is replaced, never missing, but the kernel refuses a packet that has
// found a next hop just as it is freed. In IPv4 all others see the old next
// hops or the new ones. In IPv6 the kernel puts the first new next hop in the old
// ones' place and appends the others, so that for some microseconds one LB
// may get the flows of all.
func (b *Bed) Announce(lbs ...*Node) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.over {
		return errClosed
	}
	for _, n := range lbs {
		if !slices.Contains(b.LBs, n) {
			return fmt.Errorf("testbed: announce %s: it is no LB of this bed", n.Name)
		}
		if n.dead {
			return fmt.Errorf("testbed: announce %s: it is dead: Revive it first", n.Name)
		}
	}
	return b.announce(lbs)
}

func (b *Bed) announce(lbs []*Node) error {
	b.announced = slices.Clone(lbs)
	for _, vip := range vips() {
		if err := b.Router.space.spread(vip, lbs); err != nil {
			return fmt.Errorf("testbed: route %s: %w", vip.Addr(), err)
		}
	}
	return nil
}

// spread makes the nodes the next hops to p.
func (s *space) spread(p netip.Prefix, nodes []*Node) error {
	route := netlink.Route{Dst: ipNet(p)}
	if len(nodes) == 0 {
		if err := s.netlink.RouteDel(&route); !errors.Is(err, unix.ESRCH) {
			return err
		}
		return nil
	}
	for _, n := range nodes {
		link, err := s.netlink.LinkByName(n.Link)
		if err != nil {
			return fmt.Errorf("find %s: %w", n.Link, err)
		}
		route.MultiPath = append(route.MultiPath, &netlink.NexthopInfo{
			LinkIndex: link.Attrs().Index,
			Gw:        n.towards(p).AsSlice(),
		})
	}
	return s.netlink.RouteReplace(&route)
}
