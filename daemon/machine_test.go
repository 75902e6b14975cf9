package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"proffer/api"
	"proffer/control"
	"proffer/dataplane"
	"proffer/listeners"
	"proffer/topo"
	"proffer/weights"
)

// patience bounds every wait of these tests.
const patience = 10 * time.Second

// machine is a host with a kernel, clock and planes that a test controls.
type machine struct {
	t      *testing.T
	file   string // the configuration
	socket string
	clock  *clock
	lines  chan string // of the log
	drain  time.Duration
	detach bool // at the daemon's end
	// weights are those of the configuration
	weightless bool
	loading    func() // happens while a plane is loaded
	lost       chan netip.Addr
	// why flows end with the daemon; empty: they do not
	unpinned string
	problems []string
	// flows of an earlier daemon that are lost
	forgotten string
	changes   chan struct{}
	advised   []string
	logged    api.LogStatus

	mu      sync.Mutex
	events  []string         // in the order of time
	fails   map[string]error // by event
	states  []string         // that the service manager got
	advice  string           // about the host's settings
	bypass  string           // about those that let packets pass an edge LB by
	hops    topo.NextHops
	waiting topo.Waiting
	planned *topo.LB
	applied *topo.LB
	keys    []topo.SignalKey
	offered []topo.Offering // by a reload
	targets []netip.Addr    // of the last refresh
	reports map[int]uint32
	swept   uint64
	seats   []dataplane.Seat
	spread  []dataplane.Spread
	healths map[string]dataplane.Health // by the server's name
	down    []topo.Server
	probes  []netip.Addr

	queues   map[int]dataplane.Queue // of the servers, by the last report
	line     *line                   // the socket for reports
	recounts int
	needed   []bool // earlier pools with flows
	page     page
	listens  map[topo.VIP][]listeners.Process
	cores    float64        // of processes that listen
	loads    dataplane.Load // of every service, but for Threshold and Asking
}

// newMachine writes a configuration; its %s is the path of the control socket.
func newMachine(t *testing.T, configuration string) *machine {
	t.Helper()
	dir := t.TempDir()
	m := &machine{
		t: t, file: filepath.Join(dir, "node.yaml"), socket: filepath.Join(dir, "node.sock"),
		clock: newClock(), lines: make(chan string, 1000), lost: make(chan netip.Addr), changes: make(chan struct{}, 1),
		fails: map[string]error{}, hops: topo.NextHops{netip.MustParsePrefix("::/0"): {2}, netip.MustParsePrefix("0.0.0.0/0"): {2}}, reports: map[int]uint32{}, queues: map[int]dataplane.Queue{}, line: newLine(),
	}
	m.configure(strings.ReplaceAll(fmt.Sprintf(configuration, m.socket), "STATE", m.pools()))
	return m
}

// pools is the path of the LB's record.
func (m *machine) pools() string { return filepath.Join(filepath.Dir(m.file), "state", "pools.json") }

func (m *machine) configure(text string) {
	m.t.Helper()
	if err := os.WriteFile(m.file, []byte(text), 0o600); err != nil {
		m.t.Fatal(err)
	}
}

// host is the machine as a daemon sees it.
func (m *machine) host() *Host {
	return &Host{
		Detach:    m.detach,
		Drain:     m.drain,
		Log:       slog.New(slog.NewTextHandler(m, &slog.HandlerOptions{Level: slog.LevelDebug})),
		Logged:    func() api.LogStatus { return m.logged },
		Clock:     m.clock,
		Wall:      func() time.Time { return time.Unix(1_800_000_000, 0).Add(m.clock.Now()) },
		Preflight: func() error { return m.happens("preflight") },
		Weigher: func(svc *topo.Service) weights.Weigher {
			if m.weightless {
				return control.Configured(svc)
			}
			return weigher{len(svc.Servers)}
		},
		LB: func(cfg *topo.LB) (LBPlane, error) {
			m.applied = cfg
			return plane{m}, m.load()
		},
		Agent: func(*topo.Agent) (AgentPlane, error) { return plane{m}, m.load() },
		Edge:  func(*topo.EdgeLB) (EdgePlane, error) { return tunnelPlane{plane{m}, edgeAt}, m.load() },
		NF:    func(*topo.Datapath) (NFPlane, error) { return nfPlane{tunnelPlane{plane{m}, nodeAt}}, m.load() },
		Costs: func(*topo.Datapath) (map[int]weights.Curve, error) {
			return map[int]weights.Curve{5: weights.Fixed(2500)}, m.happens("measure")
		},
		CountRunTime: func() (func() error, error) {
			return func() error { return m.happens("stop counting") }, m.happens("count run time")
		},
		Notify: func(state string) error {
			m.mu.Lock()
			defer m.mu.Unlock()
			m.states = append(m.states, state)
			return nil
		},
		Advice: func(link string, vips []netip.Addr, answers bool) ([]string, error) {
			if m.advice == "" {
				return nil, nil
			}
			return []string{fmt.Sprintf("%s %s %v %v", m.advice, link, vips, answers)}, nil
		},
		Bypass: func(lb *topo.EdgeLB) ([]string, error) {
			if m.bypass == "" {
				return nil, m.happens("read rules")
			}
			return []string{fmt.Sprintf("%s %s %v", m.bypass, lb.Clients, lb.Services[0].Prefixes)}, nil
		},
		Routing: func(r Routed) []string {
			if m.advice == "" {
				return nil
			}
			return []string{fmt.Sprintf("route by %s %v %v", r.Link, r.Sources, r.Families)}
		},
		Listeners: func(netns string, _ []topo.VIP) (map[topo.VIP][]listeners.Process, error) {
			m.mu.Lock()
			defer m.mu.Unlock()
			return m.listens, m.fails["listeners"+netns]
		},
		Cores: func(of []listeners.Process) (float64, bool) {
			m.mu.Lock()
			defer m.mu.Unlock()
			return m.cores, len(of) > 0
		},
		Reports: func(context.Context, netip.AddrPort) (ReportSocket, error) {
			m.mu.Lock()
			defer m.mu.Unlock()
			return m.line, m.fails["open reports"]
		},
		NextHops: func(link string, _ netip.Prefix) (control.NextHops, error) {
			return nextHops{m}, m.happens("watch " + link)
		},
		Source: func(o *topo.Offering) (Source, error) { return &m.page, m.happens("open " + o.Page) },
	}
}

func (m *machine) load() error {
	if m.loading != nil {
		m.loading()
	}
	return m.happens("load")
}

// happens notes an event, and whether the socket is there, and fails if it shall.
func (m *machine) happens(event string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, err := os.Lstat(m.socket); err == nil {
		m.events = append(m.events, event+" (socket)")
	} else {
		m.events = append(m.events, event)
	}
	return m.fails[event]
}

// happened returns the events until now.
func (m *machine) happened() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.events)
}

func (m *machine) wantEvents(want ...string) {
	m.t.Helper()
	if got := m.happened(); !slices.Equal(got, want) {
		m.t.Errorf("events\n%q, want\n%q", got, want)
	}
}

// fail makes an event fail from now on.
func (m *machine) fail(event string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.fails[event] = errors.New(event + " is broken")
	return m.fails[event]
}

// Write takes a line of the log.
func (m *machine) Write(line []byte) (int, error) {
	m.lines <- string(line)
	return len(line), nil
}

// logs waits for a line of the log that contains part, and returns it.
func (m *machine) logs(part string) string {
	m.t.Helper()
	late := time.After(patience)
	for {
		select {
		case line := <-m.lines:
			if strings.Contains(line, part) {
				return line
			}
		case <-late:
			m.t.Fatalf("the log does not say %q within %v; events: %q", part, patience, m.happened())
		}
	}
}

// hangup sends SIGHUP to this process, which is the daemon's.
func (m *machine) hangup() {
	if err := unix.Kill(os.Getpid(), unix.SIGHUP); err != nil {
		m.t.Error(err)
	}
}

func (m *machine) status() api.Status {
	m.t.Helper()
	ctx, cancel := context.WithTimeout(m.t.Context(), patience)
	defer cancel()
	s, err := api.Ask(ctx, m.socket)
	if err != nil {
		m.t.Fatal(err)
	}
	return s
}

// process is a daemon that runs.
type process struct {
	t     *testing.T
	stop  context.CancelFunc
	ended chan error
}

type entry func(context.Context, string, *Host) error

// start runs a daemon; it is ended with the test at the latest.
func (m *machine) start(run entry) *process {
	ctx, cancel := context.WithCancel(m.t.Context())
	p := &process{t: m.t, stop: cancel, ended: make(chan error, 1)}
	go func() { p.ended <- run(ctx, m.file, m.host()) }()
	return p
}

// running is start that returns when the daemon is ready.
func (m *machine) running(run entry) *process {
	m.t.Helper()
	p := m.start(run)
	m.logs("msg=ready")
	return p
}

// exits returns the daemon's error.
func (p *process) exits() error {
	p.t.Helper()
	select {
	case err := <-p.ended:
		return err
	case <-time.After(patience):
		p.t.Fatalf("the daemon does not end within %v:\n%s", patience, goroutines())
		return nil
	}
}

// wait is exits, and demands that no goroutine outlives the daemon.
func (p *process) wait() error {
	p.t.Helper()
	err := p.exits()
	for late := time.Now().Add(patience); goroutines() != ""; time.Sleep(time.Millisecond) {
		if time.Now().After(late) {
			p.t.Fatalf("goroutines outlive the daemon:\n%s", goroutines())
		}
	}
	return err
}

// end stops the daemon, which is to end well.
func (p *process) end() {
	p.t.Helper()
	p.stop()
	if err := p.wait(); err != nil {
		p.t.Errorf("the daemon ended with: %v", err)
	}
}

// goroutines are those that run code of the product, without this one.
func goroutines() string {
	stacks := make([]byte, 1<<20)
	stacks = stacks[:runtime.Stack(stacks, true)]
	var ours []string
	for _, g := range strings.Split(string(stacks), "\n\n")[1:] {
		if strings.Contains(g, "\nproffer/") {
			ours = append(ours, g)
		}
	}
	return strings.Join(ours, "\n\n")
}
