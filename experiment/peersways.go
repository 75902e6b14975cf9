package experiment

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"proffer/testbed"
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
	byHunt    = "hunt"
	bySingle  = "single"
	byHAProxy = "haproxy"
	byNginx   = "nginx"
)

func peers() []peer {
	return []peer{
		{byRoute, startRoute},
		{byHunt, func(ctx context.Context, c *contest) (*balancer, error) {
			return c.startProffer(ctx, topo.Policy{Dispatch: topo.Hunt, Acceptance: topo.Static, Threshold: 4}, "offer")
		}},
		{bySingle, func(ctx context.Context, c *contest) (*balancer, error) {
			return c.startProffer(ctx, topo.Policy{Dispatch: topo.Single}, "deliver")
		}},
		{byHAProxy, func(_ context.Context, c *contest) (*balancer, error) {
			return c.startProxy(haproxyConf, haproxyServer, "haproxy", "-db", "-f")
		}},
		{byNginx, func(_ context.Context, c *contest) (*balancer, error) {
			return c.startProxy(nginxConf, nginxServer, "nginx", "-e", "stderr", "-p", c.bed.Dir, "-c")
		}},
	}
}

// balancer is what stands in the balancer's place.
type balancer struct {
	processes []*testbed.Process // whose CPU time is the balancer's
	loaders   []*testbed.Process // whose eBPF programs' time is
	agents    []*testbed.Process
	balanced  func(context.Context) (uint64, error) // connections, by its own books; nil: it has none
	stop      func() error
}

// place is the node where balancers stand.
func (c *contest) place() *testbed.Node { return c.bed.LBs[0] }

// routeTable is the router's for what comes from the balancer's place: by its
// main table it would send the VIP's packets back there.
const routeTable = 100

// startRoute makes the balancer's place a router, and the bed's router send what
// it forwards to the first server.
func startRoute(_ context.Context, c *contest) (*balancer, error) {
	first := c.bed.Servers[0]
	rule := netlink.NewRule()
	rule.Family, rule.IifName, rule.Table = unix.AF_INET6, c.place().Link, routeTable
	vip := netlink.NewIPNet(c.bed.VIP.AsSlice())
	route := func() (*netlink.Route, error) {
		link, err := netlink.LinkByName(first.Link)
		if err != nil {
			return nil, fmt.Errorf("find %s: %w", first.Link, err)
		}
		return &netlink.Route{Dst: vip, LinkIndex: link.Attrs().Index, Gw: first.Addr.AsSlice(), Table: routeTable}, nil
	}
	stop := func() error {
		return errors.Join(c.forward("0"), c.bed.Router.Do(func() error {
			r, err := route()
			if err != nil {
				return err
			}
			return errors.Join(netlink.RuleDel(rule), netlink.RouteDel(r))
		}))
	}
	err := c.bed.Router.Do(func() error {
		r, err := route()
		if err != nil {
			return err
		}
		return errors.Join(netlink.RouteReplace(r), netlink.RuleAdd(rule))
	})
	if err = errors.Join(err, c.forward("1")); err != nil {
		return nil, fmt.Errorf("route by way of %s: %w", c.place().Name, errors.Join(err, stop()))
	}
	return &balancer{stop: stop}, nil
}

// forward lets the balancer's place forward packets, or not.
func (c *contest) forward(on string) error {
	return c.place().Do(func() error {
		return os.WriteFile("/proc/sys/net/ipv6/conf/all/forwarding", []byte(on), 0)
	})
}

// startProffer runs the daemons; counter counts each connection at the LB.
func (c *contest) startProffer(ctx context.Context, p topo.Policy, counter string) (*balancer, error) {
	farm, err := Start(ctx, c.bed, Settings{
		Policy: p, Workers: 64, Cores: 2, Programs: c.Programs,
		LB:    func(lb *topo.LB) { lb.Flows.Entries, lb.Flows.Embryonic = manyFlows, manyFlows },
		Agent: func(_ *testbed.Node, a *topo.Agent) { a.Flows.Entries, a.Flows.Embryonic = manyFlows, manyFlows },
	})
	if err != nil {
		return nil, err
	}
	lb := []*testbed.Process{farm.Daemon(c.place())}
	b := &balancer{
		processes: lb, loaders: lb, stop: farm.Stop,
		balanced: func(ctx context.Context) (uint64, error) { return farm.Count(ctx, c.bed.LBs, counter) },
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
