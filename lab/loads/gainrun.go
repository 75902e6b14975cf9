package loads

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"proffer/lab/application"
	"proffer/lab/farmrun"
	"proffer/lab/testbed"
	"proffer/lab/trace"
	"proffer/loadpage"
	"proffer/policy"
)

// gained is the outcome of a run.
type gained struct {
	latencies []float64     // of the requests that were answered, in s, from when they were due
	failed    []error       // of the others
	late      time.Duration // of the requests' start, on average
	used      time.Duration // CPU time of all servers
}

// run makes a run, with daemons of its own.
func (r *gainRun) run(ctx context.Context, w gainWay, arrivals []trace.Arrival) (_ *gained, err error) {
	p, err := policy.Parse(w.policy)
	if err != nil {
		return nil, err
	}
	farm, err := farmrun.Start(ctx, r.bed, farmrun.Settings{
		Policy: p, Measure: w.measure, Workers: 32, Cores: 1, Programs: r.Proffer,
		Page: func(server string) string { return "unix:" + r.socket(server) },
	})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, farm.Stop()) }()
	if w.measure.Page() {
		stop, err := r.tell(ctx)
		if err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, stop()) }()
	}
	before, err := r.used()
	if err != nil {
		return nil, err
	}
	run := r.ask(ctx, arrivals)
	after, err := r.used()
	run.used = after - before
	return run, errors.Join(err, ctx.Err())
}

func (r *gainRun) socket(server string) string {
	return filepath.Join(r.bed.Dir, "page-"+server+".sock")
}

// used is the CPU time that all servers have had.
func (r *gainRun) used() (sum time.Duration, err error) {
	for _, s := range r.sites {
		used, err := s.Quota.Used()
		if err != nil {
			return 0, err
		}
		sum += used
	}
	return sum, nil
}

// ask sends the arrivals, each at its time, on a connection of its own.
func (r *gainRun) ask(ctx context.Context, arrivals []trace.Arrival) *gained {
	var mu sync.Mutex
	var group sync.WaitGroup
	run, began := &gained{}, time.Now()
	for _, a := range arrivals {
		if farmrun.Sleep(ctx, time.Until(began.Add(a.At))) != nil {
			break
		}
		late := time.Since(began) - a.At
		group.Go(func() {
			err := r.one(ctx, a.Service)
			took := time.Since(began) - a.At
			mu.Lock()
			defer mu.Unlock()
			run.late += late / time.Duration(len(arrivals))
			if err != nil {
				run.failed = append(run.failed, err)
				return
			}
			run.latencies = append(run.latencies, took.Seconds())
		})
	}
	group.Wait()
	return run
}

// one is a request.
func (r *gainRun) one(ctx context.Context, cpu time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	conn, err := r.program.Dial(ctx, r.sites[0])
	if err != nil {
		return err
	}
	return errors.Join(conn.Ask(ctx, application.Request{CPU: cpu}), conn.Close())
}

// tellEvery is the time between two words on a load page.
const tellEvery = time.Millisecond

// tell writes the true load on each server's page until stop: its connections, as each has one
// request, less the sockets that it has without any.
func (r *gainRun) tell(ctx context.Context) (stop func() error, err error) {
	ctx, cancel := context.WithCancel(ctx)
	var group sync.WaitGroup
	var pages []*pageOf
	stop = func() error {
		cancel()
		group.Wait()
		var errs []error
		for _, p := range pages {
			errs = append(errs, p.failed, p.close())
		}
		return errors.Join(errs...)
	}
	for _, n := range r.bed.Servers {
		p, err := newPageOf(n, r.socket(n.Name))
		if err != nil {
			return nil, errors.Join(err, stop())
		}
		pages = append(pages, p)
		group.Go(func() {
			for p.failed == nil && farmrun.Sleep(ctx, tellEvery) == nil {
				p.failed = p.write()
			}
		})
	}
	return stop, nil
}

// pageOf is the load page of a server's agent, and the kernel's count of the server's sockets.
type pageOf struct {
	conn   *net.UnixConn
	page   []byte
	stat   *os.File
	none   int // sockets without a request
	failed error
}

func newPageOf(n *testbed.Node, socket string) (*pageOf, error) {
	p := &pageOf{}
	err := p.open(n)
	if err == nil {
		p.conn, p.page, err = loadpage.Receive(socket)
	}
	if err == nil {
		err = p.write()
	}
	if err != nil {
		return nil, errors.Join(err, p.close())
	}
	return p, nil
}

// open begins to count the connections that are made from now on.
func (p *pageOf) open(n *testbed.Node) error {
	err := n.Do(func() (err error) {
		p.stat, err = os.Open("/proc/thread-self/net/sockstat6")
		return err
	})
	if err != nil {
		return fmt.Errorf("count the sockets of %s: %w", n.Name, err)
	}
	p.none, err = p.sockets()
	return err
}

var inUse = regexp.MustCompile(`(?m)^TCP6: inuse (\d+)$`)

// sockets are the server's TCP sockets.
func (p *pageOf) sockets() (int, error) {
	text := make([]byte, 512)
	n, _ := p.stat.ReadAt(text, 0) // it ends before
	found := inUse.FindSubmatch(text[:n])
	if found == nil {
		return 0, fmt.Errorf("%s has no number of TCP6 sockets: %q", p.stat.Name(), text[:n])
	}
	return strconv.Atoi(string(found[1]))
}

// load is the number of connections.
func (p *pageOf) load() (uint32, error) {
	n, err := p.sockets()
	return uint32(max(n-p.none, 0)), err
}

func (p *pageOf) write() error {
	busy, err := p.load()
	if err != nil {
		return err
	}
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		return fmt.Errorf("stamp a load page: %w", err)
	}
	loadpage.WritePage(p.page, busy, time.Duration(now.Nano()))
	return nil
}

func (p *pageOf) close() error {
	var errs []error
	if p.page != nil {
		errs = append(errs, unix.Munmap(p.page))
	}
	if p.conn != nil {
		errs = append(errs, p.conn.Close())
	}
	if p.stat != nil {
		errs = append(errs, p.stat.Close())
	}
	return errors.Join(errs...)
}
