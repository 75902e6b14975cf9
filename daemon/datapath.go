package daemon

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"time"

	"proffer/api"
	"proffer/control"
	"proffer/dataplane"
	"proffer/dataplane/nf"
	"proffer/report"
	"proffer/topo"
	"proffer/weights"
)

// DatapathPlane is a datapath node's data plane.
type DatapathPlane interface {
	TunnelPlane
	Count(core, service int) (nf.Count, error)
	Busy() ([]time.Duration, error) // of each core, while the run time of programs is counted
	Virtual(core int) (_ nf.VirtualCore, there bool, _ error)
	Matcher
	Joiner
}

// Matcher counts the packets with each pattern of an IDS, by its place in a service's chain.
type Matcher interface {
	Matches(service, place, patterns int) ([]uint64, error)
}

// Joiner gives a core its way to user space and back.
type Joiner interface {
	Join(core int, near, far *net.Interface, socket int) error
}

// UserCore is the functions of a core in user space.
type UserCore interface {
	Join(func(core int, near, far *net.Interface, socket int) error) error
	Run(context.Context) error
	Counters() ([]dataplane.Counter, error)
	io.Closer
}

// costsOf is the cost of a packet of each service.
type costsOf map[int]weights.Curve

// datapath is the role of a datapath node.
type datapath struct {
	path  string
	cfg   *topo.Datapath
	plane DatapathPlane
	host  *Host

	costs     costsOf // as they were measured at the start
	counting  bool    // the kernel counts the run time of programs
	mu        sync.Mutex
	reporting reporting

	users []UserCore
}

// Datapath runs the datapath node that the file at path describes, until ctx ends.
func Datapath(ctx context.Context, path string, host *Host) error {
	hangups, stop := onHangup()
	defer stop()
	cfg, err := readDatapath(ctx, path)
	if err != nil {
		return err
	}
	if err := host.Preflight(); err != nil {
		return err
	}
	r := &datapath{path: path, cfg: cfg, host: host}
	if costs, err := host.Costs(cfg); err != nil {
		host.Log.Error("the costs of the chains are not measured: state them in the LBs' files", "error", err)
	} else {
		r.costs = costs
	}
	if r.plane, err = host.Datapath(cfg); err != nil {
		return err
	}
	defer r.count()()
	d := tunnels{tunnelRole: r, name: "nf", node: cfg.Name, control: cfg.Control, plane: r.plane, host: host, hangups: hangups}
	if cfg.ReportKey != nil {
		d.secret, d.secretAt = "report_key", path
	}
	d.tasks = r.reports()
	defer func() { // after the plane, which gives them packets
		for _, u := range r.users {
			if left := u.Close(); left != nil {
				host.Log.Error("end the functions in user space", "error", left)
			}
		}
	}()
	if err := r.openUsers(host); err != nil {
		return closed(r.plane, err)
	}
	for _, u := range r.users {
		d.tasks = append(d.tasks, u.Run)
	}
	return d.run(ctx)
}

// openUsers joins the cores with their functions in user space, each of which keeps a CPU busy.
func (r *datapath) openUsers(host *Host) error {
	if !r.cfg.InUserSpace() {
		return nil
	}
	runtime.GOMAXPROCS(runtime.GOMAXPROCS(0) + r.cfg.Cores) // the daemon's other work goes on beside
	for core := range r.cfg.Cores {
		u, err := host.UserCore(r.cfg, core)
		if err != nil {
			return err
		}
		r.users = append(r.users, u)
		if err := u.Join(r.plane.Join); err != nil {
			return err
		}
	}
	return nil
}

// count has the kernel count the run time of programs for reports, until stop.
func (r *datapath) count() (stop func()) {
	if r.cfg.ReportKey == nil {
		return func() {}
	}
	end, err := r.host.CountRunTime()
	if err != nil {
		r.host.Log.Warn("the loads of cores are not measured", "error", err)
		return func() {}
	}
	r.counting = true
	return func() { end() }
}

// reports answers LBs at each address of the node's.
func (r *datapath) reports() (tasks []func(context.Context) error) {
	if r.cfg.ReportKey == nil {
		return nil
	}
	seen := map[netip.Addr]bool{}
	for lb := range r.cfg.LBs {
		if own := r.plane.Address(lb); !seen[own] {
			seen[own] = true
			tasks = append(tasks, func(ctx context.Context) error {
				return answerAt(ctx, r.host, netip.AddrPortFrom(own, report.Port), "this node's costs and loads", func(from netip.Addr, b []byte) ([]byte, error) {
					return r.answer(own, from.Unmap(), b)
				})
			})
		}
	}
	return tasks
}

// answer is the answer to a datagram; nil: there is none.
func (r *datapath) answer(own, from netip.Addr, b []byte) ([]byte, error) {
	m, err := report.ParseNode(b, report.Link{Key: *r.cfg.ReportKey, From: from, To: own})
	if err != nil || m.Answer || m.Server != r.cfg.Server || !slices.Contains(r.cfg.LBs, from) {
		r.reporting.refused.Add(1)
		return nil, nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.reporting.limit.Take(r.host.Clock.Now()) {
		r.reporting.limited.Add(1)
		return nil, nil
	}
	m.Answer, m.Cores = true, r.cfg.Cores
	m.NoChain = !slices.ContainsFunc(r.cfg.Chains, func(c topo.Chain) bool { return c.Service == m.Service })
	if c, known := r.costs[m.Service]; known {
		m.Cost = &c
	}
	if r.counting {
		if m.Busy, err = r.plane.Busy(); err != nil {
			return nil, err
		}
		m.At = r.host.Clock.Now()
	}
	r.reporting.answered.Add(1)
	return m.Encode(report.Link{Key: *r.cfg.ReportKey, From: own, To: from}), nil
}

func (r *datapath) fars() (all []far) {
	for i, addr := range r.cfg.LBs {
		all = append(all, far{number: i, addr: addr, link: r.cfg.Link})
	}
	return all
}

func (r *datapath) routed() []Routed { return []Routed{{r.cfg.Link, true, familiesOf(r.cfg.Clients)}} }

// reload checks the file: a node's chains change by a restart alone, after a drain.
func (r *datapath) reload(ctx context.Context) (apply func() error, err error) {
	if _, err := readDatapath(ctx, r.path); err != nil {
		return nil, err
	}
	return nil, errors.New("a node takes its file at its start alone: drain it at the LBs and restart it")
}

// describe adds up the packets of each core, and the counters of its functions in user space.
func (r *datapath) describe(s *api.Status) (err error) {
	for _, u := range r.users {
		all, err := u.Counters()
		if err != nil {
			return err
		}
		for _, c := range all {
			s.Counters[c.Name] += c.Value
		}
	}
	s.Edge = &api.EdgeStatus{Costs: pricesAt(r.cfg, r.costs)}
	if r.cfg.ReportKey != nil {
		s.Reports = r.reporting.status()
	}
	for core := range r.cfg.Cores {
		all := api.CoreStatus{Node: r.cfg.Name, Core: core}
		for _, c := range r.cfg.Chains {
			n, err := r.plane.Count(core, c.Service)
			if err != nil {
				return err
			}
			all.Packets += n.Packets
		}
		if all.Virtual, err = r.virtual(core); err != nil {
			return err
		}
		s.Edge.Cores = append(s.Edge.Cores, all)
	}
	s.Edge.Patterns, err = r.patterns()
	return err
}

// patterns are those of the IDS in all chains.
func (r *datapath) patterns() (all []api.PatternStatus, err error) {
	for _, c := range r.cfg.Chains {
		for place, f := range c.Functions {
			ids, is := f.(topo.IDS)
			if !is {
				continue
			}
			matches, err := r.plane.Matches(c.Service, place, len(ids.Patterns))
			if err != nil {
				return nil, err
			}
			for i, p := range ids.Patterns {
				text := strconv.QuoteToASCII(p.Bytes)
				all = append(all, api.PatternStatus{Service: c.Service, Pattern: text[1 : len(text)-1], Packets: matches[i]})
			}
		}
	}
	return all, nil
}

// virtual is the work of a virtual core, nil for a core of the machine.
func (r *datapath) virtual(core int) (*api.VirtualStatus, error) {
	v, there, err := r.plane.Virtual(core)
	if err != nil || !there {
		return nil, err
	}
	return &api.VirtualStatus{At: int64(v.At), Busy: int64(v.Busy), Stayed: int64(v.Stayed), Served: v.Served, Dropped: v.Dropped}, nil
}

// pricesAt is the costs that a node measured, as of a core that is busy with one service alone.
func pricesAt(cfg *topo.Datapath, costs costsOf) (all []api.CostStatus) {
	for _, c := range cfg.Chains {
		if curve, known := costs[c.Service]; known {
			last := len(curve) - 1
			all = append(all, api.CostStatus{Node: cfg.Name, Service: c.Service, Nanoseconds: curve[last], From: string(control.CostMeasured)})
		}
	}
	return all
}

// closed closes a plane that was not attached, after err.
func closed(plane io.Closer, err error) error {
	if left := plane.Close(); left != nil {
		return errors.Join(err, fmt.Errorf("close the plane: %w", left))
	}
	return err
}
