package bench

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os/exec"
	"slices"
	"strings"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"proffer/dataplane"
	"proffer/dataplane/agent"
	inkernel "proffer/dataplane/bench"
	"proffer/topo"
)

// workBench measures the cost of the load measure work: the same work of other processes while
// the programs that count are attached, and while they are not, all on the bench's CPU.
type workBench struct {
	agent    *agent.Agent
	services []topo.Offering
	servers  []*workServer // of each service
	stranger *workStranger // no service's
	counting bool
}

var workVIP = netip.MustParseAddr("2001:db8:f::7")

const (
	workConnections = 8
	workSwitches    = 20_000 // of a part of a turn
	workRequests    = 2_000
	workTries       = 10
)

// loadWork starts the other processes, and an agent that counts nothing yet, in the thread's
// namespace, once.
func (s *session) loadWork() (err error) {
	if s.work != nil {
		return nil
	}
	s.work = &workBench{}
	s.open = append(s.open, s.work)
	if err := addLocal(workVIP); err != nil {
		return err
	}
	cfg := &topo.Agent{
		Node:  topo.Node{Name: "s0", Locator: benchServer(0), Interface: device},
		Flows: topo.FlowTable{Entries: fewFlows, Idle: time.Hour, Linger: 1},
	}
	if s.work.agent, err = agent.New(cfg); err != nil {
		return err
	}
	if s.work.stranger, err = newWorkStranger(); err != nil {
		return err
	}
	for i, kind := range workServers {
		s.work.services = append(s.work.services, topo.Offering{
			Name: kind, VIP: topo.VIP{Addr: workVIP, Port: uint16(8001 + i)}, Acceptance: topo.Always, Measure: topo.Work, Cores: 1, Workers: 1,
		})
	}
	if _, err := exec.LookPath("python3"); err != nil {
		s.note("there is no python3: work//threads and work//events are left out")
		return nil
	}
	for _, svc := range s.work.services {
		server, err := newWorkServer(svc.Name, svc.VIP)
		if err != nil {
			return err
		}
		s.work.servers = append(s.work.servers, server)
	}
	return nil
}

// Close ends the processes.
func (w *workBench) Close() error {
	var errs []error
	for _, s := range w.servers {
		errs = append(errs, s.Close())
	}
	if w.stranger != nil {
		errs = append(errs, w.stranger.Close())
	}
	if w.agent != nil {
		errs = append(errs, w.agent.Close())
	}
	return errors.Join(errs...)
}

// workRows are the rows of work, and those of the same without it: their loops. The servers
// need python3.
func (s *session) workRows() (rows []*benchRow) {
	strangers := func(w *workBench) workDone { return w.stranger }
	rows = append(rows, s.workRow("work", "switch", 1, workSwitches, strangers, (*workBench).count))
	if _, err := exec.LookPath("python3"); err == nil {
		for i, kind := range workServers {
			rows = append(rows, s.workRow("work", kind, workConnections, workRequests, func(w *workBench) workDone { return w.servers[i] }, (*workBench).count))
		}
	}
	for _, r := range rows {
		without := *r
		without.program, without.kind = "floor", r.loop
		without.pass = func() pass {
			p := r.pass()
			p.in.(*workRun).hook = nil
			return p
		}
		rows = append(rows, &without)
	}
	return append(rows, s.workRow("floor", "switch-hooks", 1, workSwitches, strangers, (*workBench).hookSwitches))
}

// workRow is a row of so many switches or requests, while programs are attached.
func (s *session) workRow(program, kind string, flows, each int, of func(*workBench) workDone, hook func(*workBench) (func() error, error)) *benchRow {
	base, _, _ := strings.Cut(kind, "-")
	row := &benchRow{program: program, kind: kind, flows: flows, floor: "line", beside: fewFlows, loop: base + "-alone", setup: s.loadWork}
	row.pass = func() pass {
		return pass{in: &workRun{s.work, of(s.work), hook}, drill: inkernel.Drill{Flows: 1}, packets: each * parts}
	}
	return row
}

// workDone is something that other processes do.
type workDone interface {
	do(n int) error
	// check returns an error unless the programs that count see it.
	check(w *workBench) error
}

// workRun does it while programs are attached.
type workRun struct {
	in   *workBench
	of   workDone
	hook func(*workBench) (func() error, error) // attaches them, and returns the way to detach them; nil: none
}

// Run takes the least time of several runs, as other processes may use the CPU, too.
func (r *workRun) Run(_, n int, _ *inkernel.Drill) (run inkernel.Run, err error) {
	if r.hook != nil {
		unhook, err := r.hook(r.in)
		if err != nil {
			return run, err
		}
		defer func() { err = errors.Join(err, unhook()) }()
	}
	least := time.Hour
	for i := range workTries + 1 {
		began := time.Now()
		if err := r.of.do(n / workTries); err != nil {
			return run, err
		}
		if took := time.Since(began); i > 0 { // the first finds nothing in the caches
			least = min(least, took)
		}
	}
	run = inkernel.Run{Took: least / time.Duration(n/workTries), Packets: uint64(n)}
	run.Verdicts[0] = run.Packets
	if r.in.counting {
		err = r.of.check(r.in)
	}
	return run, err
}

func (r *workRun) Counters() ([]dataplane.Counter, error) { return nil, nil }

// count attaches the programs that count work.
func (w *workBench) count() (end func() error, err error) {
	if _, err := w.agent.Offer(w.services); err != nil {
		return nil, err
	}
	if why := w.agent.NoWork(); why != "" {
		return nil, fmt.Errorf("work cannot be counted here: %s", why)
	}
	w.counting = true
	return func() error {
		w.counting = false
		_, err := w.agent.Offer(nil)
		return err
	}, nil
}

// reads returns an error unless a service has so many unread requests.
func (w *workBench) reads(service string, unread uint32) error {
	i := slices.Index(workServers, service)
	l, err := w.agent.Load(i)
	if err != nil {
		return fmt.Errorf("%s has no work, this is another path than that to measure: %w", service, err)
	}
	if l.Work == nil || l.Work.Unread != unread {
		return fmt.Errorf("the work of %s is %+v, not %d unread: this is another path than that to measure", service, l.Work, unread)
	}
	return nil
}

// hookSwitches attaches a program that does nothing to the tracepoint that a stranger's switch
// meets.
func (w *workBench) hookSwitches() (func() error, error) {
	h, err := inkernel.Hook("sched_switch")
	if err != nil {
		return nil, err
	}
	return h.Close, nil
}

// addLocal gives the namespace's loopback an address.
func addLocal(ip netip.Addr) error {
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		return fmt.Errorf("find lo: %w", err)
	}
	to := &netlink.Addr{IPNet: &net.IPNet{IP: ip.AsSlice(), Mask: net.CIDRMask(128, 128)}, Flags: unix.IFA_F_NODAD}
	if err := netlink.AddrAdd(lo, to); err != nil {
		return fmt.Errorf("add %v to lo: %w", ip, err)
	}
	return nil
}
