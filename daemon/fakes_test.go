package daemon

import (
	"context"
	"net"
	"net/netip"
	"os"
	"sync"
	"testing"
	"time"

	"proffer/dataplane"
	"proffer/loadsource"
	"proffer/plan"
	"proffer/topo"
	"proffer/weights"
)

// clock stands still; a test makes it tick.
type clock struct {
	mu    sync.Mutex
	now   time.Duration
	ticks map[time.Duration]chan time.Time
}

func newClock() *clock { return &clock{ticks: map[time.Duration]chan time.Time{}} }

func (c *clock) Tick(period time.Duration) (<-chan time.Time, func()) {
	return c.of(period), func() {}
}

func (c *clock) of(period time.Duration) chan time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ticks[period] == nil {
		c.ticks[period] = make(chan time.Time)
	}
	return c.ticks[period]
}

// tick ends a period, and returns when the daemon has noticed.
func (c *clock) tick(t *testing.T, period time.Duration) {
	t.Helper()
	select {
	case c.of(period) <- time.Time{}:
	case <-time.After(patience):
		t.Fatalf("no part of the daemon waits for the end of %v", period)
	}
}

// set moves the time to now.
func (c *clock) set(now time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = now
}

func (c *clock) Now() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

// plane is both kinds of data plane.
type plane struct{ *machine }

func (p plane) Attach() error     { return p.happens("attach") }
func (p plane) Forgotten() string { return p.forgotten }
func (p plane) Detach() error     { return p.happens("detach") }

func (p plane) Close() error {
	close(p.lost)
	return p.happens("close")
}

func (p plane) Suspects() ([]dataplane.Suspect, error) {
	return []dataplane.Suspect{
		{Sender: netip.MustParsePrefix("5f00:0:2:2::/64"), Packets: 3},
		{Sender: netip.MustParsePrefix("5f00:0:9:9::/64"), Packets: 1},
	}, p.fails["suspects"]
}

func (p plane) Problems() ([]string, error) { return p.problems, nil }

func (p plane) Follow() (string, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return "", p.fails["follow"]
}

func (p plane) Mode() string  { return "native" }
func (p plane) Adopted() bool { return true }

func (p plane) Link(string) *net.Interface { return &net.Interface{Index: 1, Name: "wan0"} } // renamed since the start

func (p plane) Advice() []string { return p.advised }
func (p plane) Unpinned() string { return p.unpinned }

func (p plane) Counters() ([]dataplane.Counter, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return []dataplane.Counter{{Name: "steered", Value: 7}}, p.fails["counters"]
}

func (p plane) Reach(string, topo.NextHops) error { return p.happens("next hops") }

func (p plane) SweepTurn() (dataplane.Swept, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.swept++
	return dataplane.Swept{Kept: 100 * p.swept}, nil
}

func (p plane) Unresolved() (netip.Addr, error) {
	addr, open := <-p.lost
	if !open {
		return addr, os.ErrClosed
	}
	return addr, nil
}

func (p plane) Plan(cfg *topo.LB) (*plan.Plan, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.planned = cfg
	have, err := plan.Want(p.applied, &plan.State{})
	if err != nil {
		return nil, err
	}
	want, err := plan.Want(cfg, have)
	return plan.New(have, want), err
}

func (p plane) Apply(*plan.Plan) error {
	err := p.happens("apply")
	p.mu.Lock()
	defer p.mu.Unlock()
	p.applied = p.planned
	return err
}

func (p plane) Resolved() (without []topo.Server, all int) { return []topo.Server{silent}, 2 }

// silent is a server that does not answer on the link.
var silent = topo.Server{Name: "silent", Delivery: topo.ByL2, Address: netip.MustParseAddr("10.0.0.9")}

func (p plane) Seats(svc *topo.Service) ([]dataplane.Seat, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	all := make([]dataplane.Seat, len(svc.Servers))
	for i := range all {
		if all[i].Ready = true; i < len(p.seats) {
			all[i] = p.seats[i]
		}
	}
	return all, p.fails["seats"]
}

func (p plane) Recount() (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.recounts++
	return p.recounts % 2, p.fails["recount"]
}

func (p plane) Spread(_ *topo.Service, s dataplane.Spread) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.spread = append(p.spread, s)
	return p.fails["spread"]
}

func (p plane) Health(servers []topo.Server) ([]dataplane.Health, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	all := make([]dataplane.Health, len(servers))
	for i, s := range servers {
		all[i] = p.healths[s.Name]
	}
	return all, p.fails["health"]
}

func (p plane) SetDown(servers, _ []topo.Server) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.down = servers
	return nil
}

func (p plane) Check([]dataplane.Check) error { return nil }

func (p plane) Probe(_ topo.VIP, server netip.Addr) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.probes = append(p.probes, server)
}

// Connections counts one at the first server, two at the second one …
func (p plane) Connections(services []topo.Service) ([][]uint32, error) {
	all := make([][]uint32, len(services))
	for i := range services {
		for j := range services[i].Servers {
			all[i] = append(all[i], uint32(1+j))
		}
	}
	return all, p.fails["connections"]
}

func (p plane) FlowTableBytes() uint64 { return 20 << 20 }

func (p plane) Needed(vips []topo.VIP) (map[topo.VIP][]bool, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return map[topo.VIP][]bool{vips[0]: p.needed}, p.fails["needed"]
}

func (p plane) Load(service int) (dataplane.Load, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	l := p.loads
	l.Threshold, l.Asking = 4, uint32(service)
	return l, p.fails["load of a service"]
}

func (p plane) Page(service int) (*os.File, error) {
	return os.CreateTemp(p.t.TempDir(), "page")
}

func (p plane) NoWork() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.fails["count work"]; err != nil {
		return err.Error()
	}
	return ""
}

func (p plane) SetKeys(keys []topo.SignalKey) error {
	err := p.happens("set keys")
	p.mu.Lock()
	defer p.mu.Unlock()
	p.keys = keys
	return err
}

func (p plane) Offer(services []topo.Offering) ([]plan.Step, error) {
	err := p.happens("offer")
	p.mu.Lock()
	defer p.mu.Unlock()
	p.offered = services
	return plan.Offers(plan.Offered{}, services), err
}

func (p plane) Asked(int) (uint32, error) { return 1, nil }

func (p plane) Report(service int, busy uint32, _ time.Duration) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.reports[service] = busy
	return p.fails["report"]
}

// nextHops are those of the machine's one link.
type nextHops struct{ *machine }

func (h nextHops) Changes() <-chan struct{} { return h.changes }

func (h nextHops) Read() (topo.NextHops, topo.Waiting, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.hops, h.waiting, nil
}

func (h nextHops) Resolve(addr netip.Addr) error { return h.happens("resolve " + addr.String()) }

func (h nextHops) Refresh(targets []netip.Addr) error {
	h.mu.Lock()
	h.targets = targets
	h.mu.Unlock()
	return h.happens("refresh")
}

func (h nextHops) Close() { h.happens("unwatch") }

// page is an application's word, true at 5 s.
type page struct{ closed bool }

func (p *page) Read(context.Context, time.Duration) (loadsource.Reading, error) {
	return loadsource.Reading{Busy: 3, Workers: 8, Written: 5 * time.Second}, nil
}

func (p *page) Every() time.Duration { return time.Millisecond }

func (p *page) Close() error {
	p.closed = true
	return nil
}

// weigher gives a service's two servers the weights 1 and, in seconds, the time.
type weigher struct{ servers int }

func (weigher) Observe(time.Duration, weights.Sample) {}

func (w weigher) Weights(now time.Duration) []float64 {
	return []float64{1, now.Seconds()}[:w.servers]
}

func (p plane) Begun(svc *topo.Service) ([]uint32, error) {
	return make([]uint32, len(svc.Servers)), p.fails["begun"]
}

func (p plane) Queues(_ *topo.Service, queues []dataplane.Queue) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, q := range queues {
		p.queues[q.Server] = q
	}
	return p.fails["queues"]
}

// line is a socket for reports, of which a test is the other end.
type line struct {
	sent, arrives chan packet
	closed        chan struct{}
	once          sync.Once
}

// packet is a datagram, and the address of the other end.
type packet struct {
	at netip.AddrPort
	b  []byte
}

func newLine() *line {
	return &line{sent: make(chan packet, 1000), arrives: make(chan packet, 1000), closed: make(chan struct{})}
}

func (l *line) Send(to netip.AddrPort, b []byte) error {
	l.sent <- packet{to, b}
	return nil
}

func (l *line) Receive() ([]byte, netip.AddrPort, error) {
	select {
	case p := <-l.arrives:
		return p.b, p.at, nil
	case <-l.closed:
		return nil, netip.AddrPort{}, os.ErrClosed
	}
}

func (l *line) Close() error {
	l.once.Do(func() { close(l.closed) })
	return nil
}
