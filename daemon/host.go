package daemon

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/netip"
	"os"
	"os/signal"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"proffer/api"
	"proffer/control"
	"proffer/dataplane"
	agentplane "proffer/dataplane/agent"
	"proffer/dataplane/edge"
	lbplane "proffer/dataplane/lb"
	"proffer/dataplane/nf"
	"proffer/hostcheck"
	"proffer/listeners"
	"proffer/loadsource"
	"proffer/nexthop"
	"proffer/report"
	"proffer/topo"
	"proffer/userspace"
	"proffer/weights"
)

// Host is the machine that a daemon runs on.
type Host struct {
	Log          *slog.Logger
	Logged       func() api.LogStatus // how the lines of Log get on
	Clock        control.Clock
	Wall         func() time.Time // outlives the machine's restarts, and may jump
	Preflight    func() error     // why no plane can be loaded here
	LB           func(*topo.LB) (LBPlane, error)
	Agent        func(*topo.Agent) (AgentPlane, error)
	Edge         func(*topo.EdgeLB) (EdgePlane, error)
	NF           func(*topo.Datapath) (NFPlane, error)
	UserCore     func(*topo.Datapath, int) (UserCore, error)
	Costs        func(*topo.Datapath) (map[int]weights.Curve, error) // of a packet of each service, before the plane is loaded
	CountRunTime func() (stop func() error, err error)               // has the kernel count that of programs
	NextHops     func(link string, own netip.Prefix) (control.NextHops, error)
	Source       func(*topo.Offering) (Source, error)
	Listeners    func(netns string, vips []topo.VIP) (map[topo.VIP][]listeners.Process, error)
	Cores        func([]listeners.Process) (cores float64, seen bool)
	Reports      func(ctx context.Context, at netip.AddrPort) (ReportSocket, error)
	Weigher      func(*topo.Service) weights.Weigher
	Advice       func(link string, vips []netip.Addr, answers bool) ([]string, error) // settings to mend
	Bypass       func(*topo.EdgeLB) ([]string, error)                                 // settings that let packets pass the functions by
	LinkOf       func(netip.Addr) (string, error)                                     // the name of the link with an address
	Routing      func(Routed) []string                                                // settings to mend of a router
	Notify       func(state string) error                                             // to the service manager

	// Detach has a daemon detach its programs at its end; else they go on, with their flows,
	// and the next daemon takes them over.
	Detach bool
	// Drain is how long a daemon that is to end waits before for its flows to end.
	Drain time.Duration
}

// Source is an application's own word, until Close.
type Source interface {
	control.Source
	io.Closer
}

// Linux is the machine that this process runs on.
func Linux(lines *Lines) *Host {
	log := slog.New(slog.NewTextHandler(lines, nil))
	return &Host{
		Log:       log,
		Logged:    lines.State,
		Clock:     kernelClock{},
		Wall:      time.Now,
		Preflight: dataplane.Preflight,
		LB:        func(cfg *topo.LB) (LBPlane, error) { return lbplane.New(cfg) },
		Agent:     func(cfg *topo.Agent) (AgentPlane, error) { return agentplane.New(cfg) },
		Edge:      func(cfg *topo.EdgeLB) (EdgePlane, error) { return edge.New(cfg) },
		NF:        func(cfg *topo.Datapath) (NFPlane, error) { return nf.New(cfg) },
		Costs:     nf.Measure, CountRunTime: dataplane.CountRunTime,
		UserCore: func(cfg *topo.Datapath, core int) (UserCore, error) { return userspace.Open(cfg, core) },
		NextHops: func(link string, own netip.Prefix) (control.NextHops, error) { return nexthop.Watch(link, own, log) },
		Source:   func(o *topo.Offering) (Source, error) { return loadsource.Open(o) },
		Cores:    func(of []listeners.Process) (float64, bool) { return listeners.Cores("/", of) },
		Listeners: func(netns string, vips []topo.VIP) (map[topo.VIP][]listeners.Process, error) {
			return listeners.Of("/proc", netns, vips)
		},
		Reports: func(ctx context.Context, at netip.AddrPort) (ReportSocket, error) { return report.Open(ctx, at) },
		Weigher: control.Configured,
		Notify:  notify,
		Advice:  advice,
		Routing: routing,
		LinkOf:  linkWith,
		Bypass:  hostcheck.Bypass,
	}
}

// advice names the settings of this host that lose packets: of the link, and the VIPs that
// are to be its addresses, but not to draw packets here.
func advice(link string, vips []netip.Addr, answers bool) ([]string, error) {
	of, err := hostcheck.Link(link, answers)
	drawn, errDrawn := hostcheck.Answers(link, vips)
	return slices.Concat(hostcheck.VIPs(vips), drawn, of), errors.Join(err, errDrawn)
}

// settings is advice about the settings of a link, by its name now, with the VIPs that are to be the host's
// addresses; answers: this host's packets leave through a plane there.
func (h *Host) settings(link string, vips []netip.Addr, answers bool) []string {
	list, err := h.Advice(link, vips, answers)
	if err != nil {
		list = append(list, fmt.Sprintf("the settings of %s cannot be checked: %v", link, err))
	}
	return list
}

// routes is advice about the settings of links by which packets come that this host sends out of other links.
func (h *Host) routes(plane Plane, links []Routed) (all []string) {
	for _, r := range links {
		if dev := plane.Link(r.Link); dev != nil {
			r.Link = dev.Name
		}
		all = append(append(all, h.settings(r.Link, nil, false)...), h.Routing(r)...)
	}
	return all
}

// Routed is a link by which packets come that leave this host by another link.
type Routed struct {
	Link     string
	Sources  bool  // some have sources behind another link
	Families []int // 4, 6
}

// routing names the settings of this host that drop such packets.
func routing(r Routed) []string {
	all := hostcheck.Router(r.Link, r.Families...)
	if r.Sources && slices.Contains(r.Families, 4) {
		all = append(all, hostcheck.SourceFilter(r.Link)...)
	}
	return all
}

// familiesOf are those of prefixes of the client network.
func familiesOf(prefixes []netip.Prefix) (all []int) {
	for _, family := range []int{4, 6} {
		if slices.ContainsFunc(prefixes, func(p netip.Prefix) bool { return p.Addr().Is4() == (family == 4) }) {
			all = append(all, family)
		}
	}
	return all
}

// describe adds to a status how the surroundings of the daemon are.
func (h *Host) describe(s *api.Status) {
	log := h.Logged()
	s.Log = &log
	if t := trouble(log); t != "" {
		s.Problems = append(s.Problems, t)
	}
}

type kernelClock struct{}

func (kernelClock) Tick(period time.Duration) (<-chan time.Time, func()) {
	t := time.NewTicker(period)
	return t.C, t.Stop
}

func (kernelClock) Now() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		panic(err) // the kernel always has this clock
	}
	return time.Duration(ts.Nano())
}

// onHangup catches SIGHUP from now on: a signal while the programs are loaded does not
// end the daemon, and causes a reload afterwards.
func onHangup() (hangups <-chan os.Signal, stop func()) {
	c := make(chan os.Signal, 1)
	signal.Notify(c, unix.SIGHUP)
	return c, func() { signal.Stop(c) }
}
