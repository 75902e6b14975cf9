package daemon

import (
	"context"
	"errors"
	"io"
	"maps"
	"net"
	"net/netip"
	"reflect"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"proffer/api"
	"proffer/control"
	"proffer/dataplane"
	"proffer/dataplane/nf"
	"proffer/report"
	"proffer/topo"
	"proffer/weights"
)

// NFPlane is an nf's data plane.
type NFPlane interface {
	Plane
	Apply(*topo.Datapath) error
	Address(lb int) netip.Addr // of this host at the tunnel to an LB, at which it is asked for reports
	Count(core, service int) (nf.Count, error)
	Busy() ([]time.Duration, error) // of each core, while the run time of programs is counted
	Virtual(core int) (_ nf.VirtualCore, there bool, _ error)
	Matches(service, place, patterns int) ([]uint64, error) // the packets with each pattern of an IDS, by its place in a chain
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

// networkFunctions is the role of an nf.
type networkFunctions struct {
	from  origin
	now   atomic.Pointer[topo.Datapath]
	plane NFPlane
	host  *Host

	costs     costsOf // as they were measured at the start, and at the last reload
	counting  bool    // the kernel counts the run time of programs
	mu        sync.Mutex
	drains    bool // it has no chain for new flows, by its reports
	reporting reporting
	reloaded  chan struct{} // the addresses that it is asked at may be others

	users []UserCore
}

// runNF runs network functions until ctx ends.
func runNF(ctx context.Context, from origin, host *Host) error {
	hangups, stop, err := from.changes()
	if err != nil {
		return err
	}
	defer stop()
	cfg, err := from.NF(ctx)
	if err != nil {
		return err
	}
	if err := host.Preflight(); err != nil {
		return err
	}
	r := &networkFunctions{from: from, host: host, reloaded: make(chan struct{}, 1)}
	r.now.Store(cfg)
	r.measure(cfg)
	if r.plane, err = host.NF(cfg); err != nil {
		return err
	}
	defer r.count()()
	defer func() { // after the plane, which gives them packets
		for _, u := range r.users {
			if left := u.Close(); left != nil {
				host.Log.Error("end the functions in user space", "error", left)
			}
		}
	}()
	if err := r.openUsers(cfg); err != nil {
		return errors.Join(err, r.plane.Close())
	}
	d := daemon{host: host, hangups: hangups, role: role{
		name: "nf", node: cfg.Name, control: cfg.Control, from: from,
		plane: r.plane, ways: r.ways, attach: r.plane.Attach, ready: func() []any { return []any{"chains", len(cfg.Chains)} }, warn: func() {},
		advice: func() []string { return host.routes(r.plane, r.routed()) }, describe: r.describe, reload: r.reload, drain: r.drain,
		tasks: []func(context.Context) error{r.report},
	}}
	if cfg.ReportKey != nil {
		d.keeps = from.keeps("report_key")
	}
	for _, u := range r.users {
		d.tasks = append(d.tasks, u.Run)
	}
	return d.run(ctx)
}

// measure measures the costs of the chains of a configuration.
func (r *networkFunctions) measure(cfg *topo.Datapath) {
	costs, err := r.host.Costs(cfg)
	if err != nil {
		r.host.Log.Error("the costs of the chains are not measured: state them in the LBs' files", "error", err)
		costs = nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.costs = costs
}

// openUsers joins the cores with their functions in user space, which each keep a CPU busy.
func (r *networkFunctions) openUsers(cfg *topo.Datapath) error {
	if !cfg.InUserSpace() {
		return nil
	}
	runtime.GOMAXPROCS(runtime.GOMAXPROCS(0) + cfg.Cores) // the daemon's other work goes on beside
	for core := range cfg.Cores {
		u, err := r.host.UserCore(cfg, core)
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
func (r *networkFunctions) count() (stop func()) {
	if r.now.Load().ReportKey == nil {
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

// report answers LBs at each address of the node's until ctx ends. A reload may change the addresses.
func (r *networkFunctions) report(ctx context.Context) error {
	for ctx.Err() == nil {
		some, cancel := context.WithCancel(ctx)
		group, inner := errgroup.WithContext(some)
		for _, own := range r.asked() {
			group.Go(func() error {
				return answerAt(inner, r.host, netip.AddrPortFrom(own, report.Port), "this node's costs and loads", func(from netip.Addr, b []byte) ([]byte, error) {
					return r.answer(own, from.Unmap(), b)
				})
			})
		}
		group.Go(func() error {
			defer cancel()
			select {
			case <-inner.Done():
			case <-r.reloaded:
			}
			return nil
		})
		if err := group.Wait(); err != nil {
			return err
		}
	}
	return nil
}

// asked are the addresses of this host at which LBs ask, if they do.
func (r *networkFunctions) asked() (all []netip.Addr) {
	cfg := r.now.Load()
	if cfg.ReportKey == nil {
		return nil
	}
	for lb := range cfg.LBs {
		if own := r.plane.Address(lb); !slices.Contains(all, own) {
			all = append(all, own)
		}
	}
	return all
}

// answer is the answer to a datagram; nil: there is none.
func (r *networkFunctions) answer(own, from netip.Addr, b []byte) ([]byte, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	cfg := r.now.Load()
	m, err := report.ParseNode(b, report.Link{Key: *cfg.ReportKey, From: from, To: own})
	if err != nil || m.Answer || m.Server != cfg.Server || !slices.Contains(cfg.LBs, from) {
		r.reporting.refused.Add(1)
		return nil, nil
	}
	if !r.reporting.limit.Take(r.host.Clock.Now()) {
		r.reporting.limited.Add(1)
		return nil, nil
	}
	m.Answer, m.Cores = true, cfg.Cores
	m.NoChain = r.drains || !slices.ContainsFunc(cfg.Chains, func(c topo.Chain) bool { return c.Service == m.Service })
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
	return m.Encode(report.Link{Key: *cfg.ReportKey, From: own, To: from}), nil
}

// drain has LBs send no new flows: by its reports the node has no chain for them.
func (r *networkFunctions) drain() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.drains = true
	if r.now.Load().ReportKey == nil {
		return errors.New("without a report_key the LBs do not know: give the node weight 0 in their files")
	}
	return nil
}

func (r *networkFunctions) ways() control.Ways {
	cfg := r.now.Load()
	return control.Ways{cfg.Link: cfg.LBs}
}

func (r *networkFunctions) routed() []Routed {
	cfg := r.now.Load()
	return []Routed{{cfg.Link, true, familiesOf(cfg.Clients)}}
}

// reload reads the file again and applies it.
func (r *networkFunctions) reload(ctx context.Context) error {
	next, err := r.from.NF(ctx)
	if err == nil {
		err = sameNF(r.now.Load(), next)
	}
	if err != nil || reflect.DeepEqual(r.now.Load(), next) {
		return err
	}
	if err := r.plane.Apply(next); err != nil {
		return err
	}
	r.measure(next)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.now.Store(next)
	select {
	case r.reloaded <- struct{}{}:
	default:
	}
	return nil
}

// sameNF returns an error for a reload that changes more than programs and their tables.
func sameNF(was, is *topo.Datapath) error {
	err := fixed([]kept{
		{"name", was.Name == is.Name},
		{"control", was.Control == is.Control},
		{"pin", was.Pin == is.Pin},
		{"number", was.Server == is.Server},
		{"link", was.Link == is.Link},
	})
	switch {
	case err != nil:
		return err
	case (was.ReportKey == nil) != (is.ReportKey == nil):
		return errors.New("a report_key cannot come or go while the daemon runs: restart it")
	case !maps.Equal(usersOf(was), usersOf(is)):
		return fixed([]kept{{"function: user", false}})
	case was.InUserSpace() && (was.Cores != is.Cores || was.Spread != is.Spread):
		return errors.New("cores and cpus cannot change while the daemon runs a function in user space: restart it")
	}
	return nil
}

// usersOf are the functions in user space, by their service.
func usersOf(cfg *topo.Datapath) map[int]topo.UserFunction {
	all := map[int]topo.UserFunction{}
	for _, c := range cfg.Chains {
		for _, f := range c.Functions {
			if u, is := f.(topo.User); is {
				all[c.Service] = u.Run
			}
		}
	}
	return all
}

// describe adds up the packets of each core, and the counters of its functions in user space.
func (r *networkFunctions) describe(s *api.Status) (err error) {
	for _, u := range r.users {
		all, err := u.Counters()
		if err != nil {
			return err
		}
		for _, c := range all {
			s.Counters[c.Name] += c.Value
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	cfg := r.now.Load()
	s.Edge = &api.EdgeStatus{Costs: pricesAt(cfg, r.costs)}
	if cfg.ReportKey != nil {
		s.Reports = r.reporting.status()
	}
	for core := range cfg.Cores {
		all := api.CoreStatus{Node: cfg.Name, Core: core}
		for _, c := range cfg.Chains {
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
	s.Edge.Patterns, err = r.patterns(cfg)
	return err
}

// patterns are those of the IDS in all chains.
func (r *networkFunctions) patterns(cfg *topo.Datapath) (all []api.PatternStatus, err error) {
	for _, c := range cfg.Chains {
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
func (r *networkFunctions) virtual(core int) (*api.VirtualStatus, error) {
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
