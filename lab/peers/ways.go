package peers

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"proffer/lab/farmrun"
	"proffer/lab/testbed"
	"proffer/topo"
)

// peer is one of those that are compared. start puts it into the balancer's
// place: the bed's only LB.
type peer struct {
	name  string
	start func(context.Context, *contest) (*balancer, error)
}

// The peers by name.
const (
	byRoute   = "route"
	byECMP    = "ecmp"
	byHunt    = "hunt"
	bySingle  = "single"
	byHAProxy = "haproxy"
	byNginx   = "nginx"
)

func peers() []peer {
	return []peer{
		{byRoute, func(_ context.Context, c *contest) (*balancer, error) { return c.startForwarding(c.bed.Servers[:1]) }},
		{byECMP, func(_ context.Context, c *contest) (*balancer, error) { return c.startForwarding(c.bed.Servers) }},
		{byHunt, func(ctx context.Context, c *contest) (*balancer, error) {
			return c.startProffer(ctx, topo.Policy{Dispatch: topo.Hunt, Acceptance: topo.Static, Threshold: 4}, "offer", "offer_again", "offer_retry")
		}},
		{bySingle, func(ctx context.Context, c *contest) (*balancer, error) {
			return c.startProffer(ctx, topo.Policy{Dispatch: topo.Single}, "steer")
		}},
		{byHAProxy, func(_ context.Context, c *contest) (*balancer, error) {
			return c.startProxy(haproxyConf, haproxyServer, "haproxy", "-db", "-f")
		}},
		{byNginx, func(_ context.Context, c *contest) (*balancer, error) {
			return c.startProxy(nginxConf, nginxServer, "nginx", "-e", "stderr", "-p", c.bed.Dir, "-c")
		}},
	}
}

// balancer is the set of processes in the balancer's place.
type balancer struct {
	processes []*testbed.Process // their CPU time is the balancer's
	loaders   []*testbed.Process // their eBPF programs' time is
	agents    []*testbed.Process
	balanced  func(context.Context) (uint64, error) // connections, by its own books; nil: it has none
	stop      func() error
}

// place is the node where balancers stand.
func (c *contest) place() *testbed.Node { return c.bed.LBs[0] }

// routeTable is the router's for packets from the balancer's place: by its
// main table it would send the VIP's packets back there.
const routeTable = 100

// startForwarding makes the balancer's place a router, and the bed's router spread
// the forwarded packets over these servers.
func (c *contest) startForwarding(to []*testbed.Node) (*balancer, error) {
	rule := netlink.NewRule()
	rule.Family, rule.IifName, rule.Table = unix.AF_INET6, c.place().Link, routeTable
	route := netlink.Route{Dst: netlink.NewIPNet(c.bed.VIP.AsSlice()), Table: routeTable}
	stop := func() error {
		return errors.Join(c.forward(false), c.bed.Router.Do(func() error {
			return errors.Join(netlink.RuleDel(rule), netlink.RouteDel(&route)) // with all its next hops
		}))
	}
	err := c.bed.Router.Do(func() error {
		hops, err := nextHops(to)
		if err != nil {
			return err
		}
		spread := route
		spread.MultiPath = hops
		return errors.Join(netlink.RouteReplace(&spread), netlink.RuleAdd(rule))
	})
	if err = errors.Join(err, c.forward(true)); err != nil {
		return nil, fmt.Errorf("route by way of %s: %w", c.place().Name, errors.Join(err, stop()))
	}
	return &balancer{stop: stop}, nil
}

// nextHops are the nodes as the router sees them; the caller is in the router's network.
func nextHops(to []*testbed.Node) (hops []*netlink.NexthopInfo, err error) {
	for _, n := range to {
		link, err := netlink.LinkByName(n.Link)
		if err != nil {
			return nil, fmt.Errorf("find %s: %w", n.Link, err)
		}
		hops = append(hops, &netlink.NexthopInfo{LinkIndex: link.Attrs().Index, Gw: n.Addr.AsSlice()})
	}
	return hops, nil
}

// forward lets the balancer's place forward packets, or not. A router looks for no
// sockets: Linux does not forward a packet that finds one, and for a minute the place has
// one in TIME_WAIT for each connection of a proxy that stood there.
func (c *contest) forward(on bool) error {
	forwarding, demux := "0", "1"
	if on {
		forwarding, demux = "1", "0"
	}
	return errors.Join(
		set(c.place(), "ipv4/ip_early_demux", demux), // IPv6 goes by it, too
		set(c.place(), "ipv6/conf/all/forwarding", forwarding))
}

// spare gives clients enough ports: each closes thousands a
// second, and by itself Linux keeps a port for a minute after.
func (c *contest) spare() error {
	var errs []error
	for _, n := range []*testbed.Node{c.bed.Client, c.place()} {
		errs = append(errs, set(n, "ipv4/ip_local_port_range", "1024 65535"), set(n, "ipv4/tcp_tw_reuse", "1"))
	}
	return errors.Join(errs...)
}

// set sets a sysctl of a node's network.
func set(n *testbed.Node, name, value string) error {
	return n.Do(func() error { return os.WriteFile("/proc/sys/net/"+name, []byte(value), 0) })
}

// startProffer runs the daemons; the LB counts each connection in one of counters.
func (c *contest) startProffer(ctx context.Context, p topo.Policy, counters ...string) (*balancer, error) {
	farm, err := farmrun.Start(ctx, c.bed, farmrun.Settings{
		Policy: p, Workers: 64, Cores: 2, Programs: c.Programs,
		LB:    func(lb *topo.LB) { lb.Flows.Entries = manyFlows },
		Agent: func(_ *testbed.Node, a *topo.Agent) { a.Flows.Entries, a.Flows.Embryonic = manyFlows, manyFlows },
	})
	if err != nil {
		return nil, err
	}
	lb := []*testbed.Process{farm.Daemon(c.place())}
	b := &balancer{
		processes: lb, loaders: lb, stop: farm.Stop,
		balanced: func(ctx context.Context) (sum uint64, err error) {
			for _, counter := range counters {
				n, err := farm.Count(ctx, c.bed.LBs, counter)
				if err != nil {
					return 0, err
				}
				sum += n
			}
			return sum, nil
		},
	}
	for _, n := range c.bed.Servers {
		b.agents = append(b.agents, farm.Daemon(n))
	}
	return b, nil
}

// manyFlows has room for all ports of the one client address that wrk uses.
const manyFlows = 1 << 17

// startProxy runs a proxy on the VIP, which its node gets. The configuration has
// the VIP and a line for each server in it, and comes last of the arguments.
func (c *contest) startProxy(conf, server, name string, args ...string) (*balancer, error) {
	var servers strings.Builder
	for _, n := range c.bed.Servers {
		fmt.Fprintf(&servers, server, n.Name, n.Addr)
	}
	path, err := c.write(name+".conf", fmt.Sprintf(conf, c.bed.VIP, servers.String()))
	if err != nil {
		return nil, err
	}
	if err := c.own(netlink.AddrAdd); err != nil {
		return nil, err
	}
	p, err := c.place().Start(context.Background(), name, append(args, path)...)
	if err != nil {
		return nil, errors.Join(err, c.own(netlink.AddrDel))
	}
	return &balancer{
		processes: []*testbed.Process{p},
		stop:      func() error { return errors.Join(p.Stop(), c.own(netlink.AddrDel)) },
	}, nil
}

// own adds the VIP to the balancer's place or takes it away.
func (c *contest) own(change func(netlink.Link, *netlink.Addr) error) error {
	err := c.place().Do(func() error {
		lo, err := netlink.LinkByName("lo")
		if err != nil {
			return err
		}
		return change(lo, &netlink.Addr{IPNet: netlink.NewIPNet(c.bed.VIP.AsSlice()), Flags: unix.IFA_F_NODAD})
	})
	if err != nil {
		return fmt.Errorf("give %s to %s, or take it back: %w", c.bed.VIP, c.place().Name, err)
	}
	return nil
}
