package daemon

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"net/netip"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"proffer/api"
	"proffer/control"
	"proffer/dataplane/edge"
	"proffer/topo"
)

// EdgePlane is an edge LB's data plane.
type EdgePlane interface {
	Plane
	control.Edge
	Apply(*topo.EdgeLB) error
	Address(server int) netip.Addr              // of this host at the tunnel to a node, at which it is asked for reports
	Probe() error                               // asks all nodes for a sign of life
	Answered(server int) (at uint64, err error) // changes when a packet of the node comes
	SetDown(servers map[int]bool) error         // they get no packets
	Talkers(n int) ([]edge.Talker, error)
}

// mostTalkers is how many flows a status names.
const mostTalkers = 8

// edgeLB is the role of an edge LB.
type edgeLB struct {
	from    origin
	started *topo.EdgeLB
	now     atomic.Pointer[topo.EdgeLB]
	plane   EdgePlane
	host    *Host

	mu      sync.Mutex // the levels and a change at a time
	levels  *control.Levels
	wishes  uint64 // for another node
	replica *replica
	silence *control.Silence
	down    map[int]bool // nodes that answer no probe

	problems       []string // that the nodes' reports show
	nodes          *inquiry
	refusedReports atomic.Uint64

	passedBy, drained told // of warn
}

// runEdge runs an edge LB until ctx ends.
func runEdge(ctx context.Context, from origin, host *Host) error {
	hangups, stop, err := from.changes()
	if err != nil {
		return err
	}
	defer stop()
	cfg, err := from.Edge(ctx)
	if err != nil {
		return err
	}
	if err := host.Preflight(); err != nil {
		return err
	}
	r := &edgeLB{from: from, started: cfg, host: host, silence: control.NewSilence(), down: map[int]bool{}, nodes: newInquiry(), replica: newReplica(host.Log)}
	r.now.Store(cfg)
	if r.plane, err = host.Edge(cfg); err != nil {
		return err
	}
	if r.levels, err = control.NewLevels(r.plane, cfg, nil); err != nil {
		return errors.Join(err, r.plane.Close())
	}
	defer r.nodes.close()
	d := daemon{host: host, hangups: hangups, role: role{
		name: "edge", node: cfg.Name, control: cfg.Control, keeps: from.keeps("flow_key"), from: from,
		plane: r.plane, ways: r.ways, attach: r.plane.Attach, ready: func() []any { return []any{"nodes", len(cfg.Nodes)} }, warn: r.warn,
		advice: func() []string { return host.routes(r.plane, r.routed()) }, describe: r.describe, reload: r.reload,
		tasks: []func(context.Context) error{
			r.listen, r.replica.serve,
			func(ctx context.Context) error {
				return host.each(ctx, control.LevelEvery, func() error { return r.level(ctx) })
			},
			func(ctx context.Context) error { return host.each(ctx, control.ProbeEvery, r.look) },
		},
	}}
	return d.run(ctx)
}

// bypass is about the settings that let packets pass the functions by.
func (r *edgeLB) bypass() []string {
	list, err := r.host.Bypass(r.now.Load())
	if err != nil {
		list = append(list, fmt.Sprintf("the host's forwarding cannot be checked: %v", err))
	}
	return list
}

func (r *edgeLB) warn() {
	r.passedBy.tell(r.host.Log, "a setting of this host lets packets pass the functions by", "advice", r.bypass())
	r.drained.tell(r.host.Log, "no node takes new flows", "problem", drainedNodes(r.now.Load()))
}

// drainedNodes is the problem of a file that lets no node take new flows.
func drainedNodes(cfg *topo.EdgeLB) []string {
	if slices.ContainsFunc(cfg.Nodes, func(n topo.EdgeNode) bool { return n.Weight > 0 }) {
		return nil
	}
	return []string{"no new flow is served, as all `nodes` have weight 0: give one of them a weight above 0, and reload"}
}

// level weighs the cores, and asks the nodes for the numbers that the next time needs.
func (r *edgeLB) level(ctx context.Context) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.levels.SetDown(r.down)
	now := r.host.Clock.Now()
	wish, err := r.levels.Tick(now)
	r.noteProblems()
	r.inquire(ctx, now)
	if wish {
		r.wishes++
		r.host.Log.Warn("the nodes' cores are full: another node is wanted")
		r.enlarge(now)
	}
	return err
}

// noteProblems logs each difference between the file and the nodes when it comes and when it goes.
func (r *edgeLB) noteProblems() {
	found := r.levels.Problems()
	came, gone := control.News(r.problems, found)
	r.problems = found
	for _, p := range came {
		r.host.Log.Warn("a node is not as this file has it", "problem", p)
	}
	for _, p := range gone {
		r.host.Log.Info("a node is as this file has it again", "problem", p)
	}
}

// enlarge has another node started, where a command does so.
func (r *edgeLB) enlarge(now time.Duration) {
	cfg := r.now.Load()
	if len(cfg.StartReplica) == 0 {
		return
	}
	s := start{command: cfg.StartReplica}
	for _, n := range cfg.Nodes {
		if n.Weight > 0 && r.down[n.Server] {
			s.down = append(s.down, n.Name)
		}
	}
	r.replica.want(now, s)
}

// ways are the links to nodes, with the nodes.
func (r *edgeLB) ways() control.Ways {
	all := control.Ways{}
	for _, n := range r.now.Load().Nodes {
		all[n.Link] = append(all[n.Link], n.Addr)
	}
	return all
}

// routed: packets of clients leave by nodes' links, and come back from there with any source.
func (r *edgeLB) routed() (all []Routed) {
	cfg := r.now.Load()
	var prefixes []netip.Prefix
	for _, s := range cfg.Services {
		prefixes = append(prefixes, s.Prefixes...)
	}
	families := familiesOf(prefixes)
	all = []Routed{{cfg.Clients, false, families}, {cfg.World, true, families}}
	for _, link := range slices.Sorted(maps.Keys(r.ways())) {
		all = append(all, Routed{link, true, families})
	}
	return all
}

// look reads the answers so far and sends the next probes. Nodes that gave no sign of life to the last probes get no
// packets.
func (r *edgeLB) look() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	down, servers := map[int]bool{}, map[int]bool{}
	for _, n := range r.now.Load().Nodes {
		answered, err := r.plane.Answered(n.Server)
		if err != nil {
			return err
		}
		servers[n.Server] = true
		if r.silence.Probed(n.Server, answered) {
			down[n.Server] = true
		}
		switch is := down[n.Server]; {
		case is == r.down[n.Server]:
		case is:
			r.host.Log.Warn("a node answers no probe: it gets no packets, and its flows go elsewhere", "node", n.Name)
		default:
			r.host.Log.Info("a node answers again, and gets new flows", "node", n.Name)
		}
	}
	r.silence.Keep(servers)
	var err error
	if !maps.Equal(down, r.down) {
		err = r.plane.SetDown(down)
	}
	r.down = down
	return errors.Join(err, r.plane.Probe())
}

// reload reads the file again and applies it.
func (r *edgeLB) reload(ctx context.Context) error {
	next, err := r.from.Edge(ctx)
	if err == nil {
		err = sameEdge(r.started, next)
	}
	if err != nil {
		return err
	}
	return r.apply(next)
}

func (r *edgeLB) apply(next *topo.EdgeLB) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	levels, err := control.NewLevels(r.plane, next, r.levels)
	if err != nil {
		return err
	}
	if err := r.plane.Apply(next); err != nil {
		return err
	}
	levels.SetDown(r.down)
	r.levels = levels
	r.now.Store(next)
	if _, err := levels.Tick(r.host.Clock.Now()); err != nil { // the status has no core without its counts
		r.host.Log.Error("upkeep of the data plane", "error", err)
	}
	return nil
}

// sameEdge returns an error for a reload that changes constants of the loaded programs, or their links.
func sameEdge(was, is *topo.EdgeLB) error {
	return fixed([]kept{
		{"name", was.Name == is.Name},
		{"control", was.Control == is.Control},
		{"pin", was.Pin == is.Pin},
		{"flow_key", was.Key == is.Key},
		{"clients", was.Clients == is.Clients},
		{"world", was.World == is.World},
		{"flow_table", was.Flows == is.Flows},
		{"recovery", was.RecoverAll == is.RecoverAll},
	})
}

// stateOf has the words that the health of servers has, and a word for a core that its node has not.
func stateOf(down, absent bool) string {
	switch {
	case down:
		return "down"
	case absent:
		return "absent"
	}
	return "answers"
}

func (r *edgeLB) describe(s *api.Status) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	cfg := r.now.Load()
	status := &api.EdgeStatus{Balancer: cfg.Balance.String(), Wishes: r.wishes, Replica: r.replica.describe(cfg.StartReplica)}
	names := map[int]string{}
	for _, n := range cfg.Nodes {
		names[n.Server] = n.Name
	}
	for _, l := range r.levels.Levels() {
		c := api.CoreStatus{Node: names[l.Server], Core: l.Core, State: stateOf(l.Down, l.Absent), Load: &l.Load, Weight: &l.Weight, Packets: l.Packets, Flows: &l.Flows}
		if !math.IsNaN(l.Measured) {
			c.Measured = &l.Measured
		}
		status.Cores = append(status.Cores, c)
	}
	status.Costs, status.RefusedReports = pricesOf(r.levels.Prices()), r.refusedReports.Load()
	s.Edge = status
	s.NoNextHop = append(s.NoNextHop, unanswered(cfg, r.down)...)
	s.Problems, s.Advice = slices.Concat(s.Problems, r.problems, drainedNodes(cfg)), append(s.Advice, r.bypass()...)
	talkers, err := r.plane.Talkers(mostTalkers)
	for _, t := range talkers {
		status.Talkers = append(status.Talkers, api.TalkerStatus{
			Protocol: protocolName(t.Protocol), Client: t.Client.String(), World: t.World.String(),
			Node: names[t.Instance.Server], Core: t.Instance.Core, Service: t.Instance.Service,
			PacketsPerSecond: t.Packets, BitsPerSecond: 8 * t.Bytes, Share: t.Share,
		})
	}
	return err
}

// unanswered lists the nodes that get no packets, as they answer no probe.
func unanswered(cfg *topo.EdgeLB, down map[int]bool) (all []string) {
	for _, n := range cfg.Nodes {
		if down[n.Server] {
			all = append(all, fmt.Sprintf("%s (node %s is down)", n.Addr, n.Name))
		}
	}
	return all
}

func protocolName(number uint8) string {
	switch number {
	case unix.IPPROTO_TCP:
		return "tcp"
	case unix.IPPROTO_UDP:
		return "udp"
	case unix.IPPROTO_ICMP, unix.IPPROTO_ICMPV6:
		return "icmp"
	}
	return strconv.Itoa(int(number))
}
