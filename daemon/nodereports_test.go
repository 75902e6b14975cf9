package daemon

import (
	"context"
	"math"
	"net"
	"net/netip"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"proffer/api"
	"proffer/control"
	"proffer/dataplane"
	"proffer/dataplane/edge"
	"proffer/dataplane/nf"
	"proffer/report"
	"proffer/topo"
	"proffer/weights"
)

const edgeText = `control: %s
flow_key: "000102030405060708090a0b0c0d0e0f"
report_key: "07000000000000000000000000000000"
clients: c
world: w
nodes:
  - {name: n1, number: 1, address: 192.0.2.2, link: l}
  - {name: n2, number: 2, address: 192.0.2.3, link: l, cores: 2}
services: [{number: 5, prefixes: [10.1.0.0/16]}]
`

const datapathText = `name: n1
control: %s
number: 1
link: l
report_key: "07000000000000000000000000000000"
lbs: [192.0.2.1, 192.0.2.9]
clients: [10.1.0.0/16]
chains: [{service: 5, functions: [{function: cost, time: 2us}]}]
`

var (
	reportKey = topo.Key{7}
	edgeAt    = netip.MustParseAddr("192.0.2.1")
	nodeAt    = netip.MustParseAddr("192.0.2.2")
)

// tunnelPlane is the data plane of an edge LB or an nf, with its own address at all tunnels.
type tunnelPlane struct {
	plane
	own netip.Addr
}

func (p tunnelPlane) Address(int) netip.Addr                 { return p.own }
func (p tunnelPlane) Counters() ([]dataplane.Counter, error) { return nil, nil }
func (p tunnelPlane) Link(name string) *net.Interface {
	return &net.Interface{Index: 1, Name: name + "-now"}
}
func (p tunnelPlane) Apply(*topo.EdgeLB) error           { return nil }
func (p tunnelPlane) Talkers(int) ([]edge.Talker, error) { return nil, nil }
func (p tunnelPlane) SetWeights(int, []float64) error    { return nil }
func (p tunnelPlane) SetCores(int, int) error            { return nil }
func (p tunnelPlane) SetDown(map[int]bool) error         { return nil }
func (p tunnelPlane) Probe() error                       { return nil }
func (p tunnelPlane) Answered(int) (uint64, error)       { return uint64(time.Now().UnixNano()), nil }

// nfPlane is that of an nf.
type nfPlane struct{ tunnelPlane }

func (p nfPlane) Apply(*topo.Datapath) error { return p.happens("apply") }

func (p tunnelPlane) Counts(int) ([]edge.Count, error) { return make([]edge.Count, 3), nil }

func (p tunnelPlane) Count(int, int) (nf.Count, error) { return nf.Count{}, nil }

func (p tunnelPlane) Matches(int, int, int) ([]uint64, error) { return nil, nil }

func (p tunnelPlane) Join(int, *net.Interface, *net.Interface, int) error { return p.happens("join") }

func (p tunnelPlane) Busy() ([]time.Duration, error) {
	return []time.Duration{3 * time.Second}, p.happens("busy")
}

func (p tunnelPlane) Virtual(int) (nf.VirtualCore, bool, error) {
	return nf.VirtualCore{}, false, nil
}

// sent is the next datagram of the daemon.
func (m *machine) sent() packet {
	m.t.Helper()
	select {
	case p := <-m.line.sent:
		return p
	case <-time.After(patience):
		m.t.Fatal("no datagram was sent")
		return packet{}
	}
}

// TestEdgeAsks: at each tick an edge LB asks its nodes, and its status has the costs and loads that they
// report; datagrams that no node signed are counted, and a silent node is named, as is one with fewer cores
// than the file has, once.
func TestEdgeAsks(t *testing.T) {
	m := newMachine(t, edgeText)
	p := m.running(Edge)
	now := time.Second
	turn := func(answers ...int) {
		t.Helper()
		now += time.Second
		m.clock.set(now)
		m.clock.tick(t, control.LevelEvery)
		for range 2 {
			sent := m.sent()
			way := report.Link{Key: reportKey, From: edgeAt, To: sent.at.Addr()}
			ask, err := report.ParseNode(sent.b, way)
			if err != nil || ask.Answer || ask.Service != 5 || sent.at.Port() != report.Port {
				t.Fatalf("request %+v to %v, %v", ask, sent.at, err)
			}
			if !slices.Contains(answers, ask.Server) {
				continue
			}
			cost := weights.Fixed(2500)
			ask.Answer, ask.Cores, ask.Cost, ask.At, ask.Busy = true, 1, &cost, now, []time.Duration{now / 4}
			m.line.arrives <- packet{netip.AddrPortFrom(way.To, report.Port), ask.Encode(report.Link{Key: reportKey, From: way.To, To: way.From})}
		}
	}
	load := func() float64 {
		if l := m.status().Edge.Cores[0].Measured; l != nil {
			return *l
		}
		return math.NaN()
	}
	turn(1)
	forged := report.NodeMessage{Server: 1, Answer: true, Cores: 1}
	m.line.arrives <- packet{netip.AddrPortFrom(nodeAt, report.Port), forged.Encode(report.Link{From: nodeAt, To: edgeAt})}
	m.line.arrives <- packet{netip.AddrPortFrom(edgeAt, report.Port), forged.Encode(report.Link{Key: reportKey, From: edgeAt, To: edgeAt})}
	wantSoon(t, "bad datagrams are not counted", func() bool { return m.status().Edge.RefusedReports == 2 })
	late := time.Now().Add(patience)
	for math.Abs(load()-0.25) > 1e-6 { // an answer may come after the next request
		if time.Now().After(late) {
			t.Fatalf("measured load %v, want .25", load())
		}
		turn(1)
	}
	for range 5 {
		turn(1)
	}
	m.logs(`msg="a node does not report its costs and loads" node=n2`)
	want := []api.CostStatus{{Node: "n1", Service: 5, Nanoseconds: 2500, From: "measured"}, {Node: "n2", Service: 5, Nanoseconds: 2500, From: "average"}}
	if got := m.status().Edge; !slices.Equal(got.Costs, want) || got.Cores[1].Measured != nil {
		t.Errorf("status %+v, want costs %+v and no load of n2", got, want)
	}
	turn(2)
	m.logs(`msg="a node reports its costs and loads again" node=n2`)
	turn(1)
	const fewer = "node n2 reports cores: 1, and this file has cores: 2: a core that is not in both gets no flows"
	m.logs(`msg="a node is not as this file has it" problem="` + fewer + `"`)
	wantSoon(t, "the status does not name a core that its node has not", func() bool {
		s := m.status()
		last := s.Edge.Cores[2]
		return slices.Equal(s.Problems, []string{fewer}) && last.State == "absent" && *last.Weight == 0 && s.Edge.Cores[1].State == "answers"
	})
	turn(1)
	for len(m.lines) > 0 {
		if line := <-m.lines; strings.Contains(line, fewer) {
			t.Errorf("named again: %s", line)
		}
	}
	p.end()
	select {
	case <-m.line.closed:
	default:
		t.Error("the socket is open after the end")
	}
}

// TestTunnelAdvice: settings of the host that lose packets are in the log at the start and in status, of each link by
// its name of now: by those of the nodes and of the world packets come that have sources behind other links.
func TestTunnelAdvice(t *testing.T) {
	for _, c := range []struct {
		run  entry
		file string
		want []string
	}{
		{Edge, edgeText, []string{
			"slow", "mend c-now [] false", "route by c-now false [4]", "mend w-now [] false", "route by w-now true [4]", "mend l-now [] false", "route by l-now true [4]",
		}},
		{NF, datapathText, []string{"slow", "mend l-now [] false", "route by l-now true [4]"}},
	} {
		m := newMachine(t, c.file)
		m.advice, m.advised = "mend", []string{"slow"}
		p := m.start(c.run)
		m.logs(`msg="the link costs speed or packets" advice=slow`)
		for _, want := range c.want[1:] {
			m.logs(`msg="a setting of this host loses packets" advice="` + want + `"`)
		}
		m.logs("msg=ready")
		if got := m.status().Advice; !slices.Equal(got, c.want) {
			t.Errorf("status has %q, want %q", got, c.want)
		}
		p.end()
	}
}

// TestEdgeWithoutSocket: an LB that cannot open the socket serves all the same.
func TestEdgeWithoutSocket(t *testing.T) {
	m := newMachine(t, edgeText)
	m.fail("open reports")
	p := m.running(Edge)
	for range 2 {
		m.clock.tick(t, control.LevelEvery)
	}
	m.logs(`msg="ask the nodes for their costs and loads" error="open reports is broken"`)
	m.status()
	p.end()
}

// TestInquiryCloses the sockets at addresses that no node is asked from any more, and no others.
func TestInquiryCloses(t *testing.T) {
	q, lines := newInquiry(), map[netip.Addr]*line{}
	host := &Host{Reports: func(_ context.Context, at netip.AddrPort) (ReportSocket, error) {
		lines[at.Addr()] = newLine()
		return lines[at.Addr()], nil
	}}
	for _, own := range []netip.Addr{edgeAt, nodeAt, edgeAt} {
		if _, err := q.at(t.Context(), own, host); err != nil {
			t.Fatal(err)
		}
	}
	closed := func(at netip.Addr) bool {
		select {
		case <-lines[at].closed:
			return true
		default:
			return false
		}
	}
	q.keep(map[netip.Addr]bool{edgeAt: true})
	if closed(edgeAt) || !closed(nodeAt) {
		t.Error("the wrong sockets are open")
	}
	q.close()
	if !closed(edgeAt) {
		t.Error("a socket is open after the end")
	}
}

// asks sends a request to a node, and returns its answer.
func (m *machine) asks(from netip.Addr, service int) report.NodeMessage {
	m.t.Helper()
	way := report.Link{Key: reportKey, From: from, To: nodeAt}
	ask := report.NodeMessage{Server: 1, Service: service, Nonce: 77}
	m.line.arrives <- packet{netip.AddrPortFrom(from, 4000), ask.Encode(way)}
	sent := m.sent()
	answer, err := report.ParseNode(sent.b, report.Link{Key: reportKey, From: nodeAt, To: from})
	if err != nil || !answer.Answer || answer.Nonce != 77 || answer.Service != service || sent.at != netip.AddrPortFrom(from, 4000) {
		m.t.Fatalf("answer %+v to %v, %v", answer, sent.at, err)
	}
	return answer
}

// TestNodeAnswers: a node tells its LBs the costs of its chains and for how long its cores have worked; others,
// and too many requests, it does not answer, and counts.
func TestNodeAnswers(t *testing.T) {
	m := newMachine(t, datapathText)
	p := m.running(NF)
	m.clock.set(time.Minute)
	if a := m.asks(edgeAt, 5); a.Cost == nil || *a.Cost != weights.Fixed(2500) || a.At != time.Minute || a.Cores != 1 || a.NoChain || !slices.Equal(a.Busy, []time.Duration{3 * time.Second}) {
		t.Errorf("answer %+v", a)
	}
	if a := m.asks(netip.MustParseAddr("192.0.2.9"), 6); a.Cost != nil || a.Busy == nil || !a.NoChain {
		t.Errorf("answer %+v about a service that is not here", a)
	}
	stranger := netip.MustParseAddr("192.0.2.7")
	for _, bad := range []struct {
		m    report.NodeMessage
		way  report.Link
		from netip.Addr
	}{
		{report.NodeMessage{Server: 2}, report.Link{Key: reportKey, From: edgeAt, To: nodeAt}, edgeAt},
		{report.NodeMessage{Server: 1}, report.Link{From: edgeAt, To: nodeAt}, edgeAt},
		{report.NodeMessage{Server: 1}, report.Link{Key: reportKey, From: stranger, To: nodeAt}, stranger},
		{report.NodeMessage{Server: 1, Answer: true, Cores: 1}, report.Link{Key: reportKey, From: edgeAt, To: nodeAt}, edgeAt},
	} {
		m.line.arrives <- packet{netip.AddrPortFrom(bad.from, 4000), bad.m.Encode(bad.way)}
	}
	for range 500 { // at one instant
		good := report.NodeMessage{Server: 1}
		m.line.arrives <- packet{netip.AddrPortFrom(edgeAt, 4000), good.Encode(report.Link{Key: reportKey, From: edgeAt, To: nodeAt})}
	}
	wantSoon(t, "not all datagrams are counted", func() bool {
		r := m.status().Reports
		return r.Refused == 4 && r.Answered == 400 && r.Limited == 102
	})
	if c := m.status().Edge.Costs; !slices.Equal(c, []api.CostStatus{{Node: "n1", Service: 5, Nanoseconds: 2500, From: "measured"}}) {
		t.Errorf("costs %+v", c)
	}
	p.end()
	if got := m.happened(); !slices.Contains(got, "stop counting") && !slices.Contains(got, "stop counting (socket)") {
		t.Errorf("the kernel counts after the end: %q", got)
	}
}

// TestNodeWithoutMeasurement: a node serves and reports nothing where its chains cannot be measured and
// the kernel does not count run times.
func TestNodeWithoutMeasurement(t *testing.T) {
	m := newMachine(t, datapathText)
	m.fail("measure")
	m.fail("count run time")
	p := m.start(NF)
	m.logs(`msg="the costs of the chains are not measured: state them in the LBs' files" error="measure is broken"`)
	m.logs(`msg="the loads of cores are not measured" error="count run time is broken"`)
	m.logs("msg=ready")
	if a := m.asks(edgeAt, 5); a.Cost != nil || a.Busy != nil {
		t.Errorf("answer %+v", a)
	}
	p.end()
}

// TestNodeWithoutReports: without a key a node opens no socket, and has the kernel count nothing.
func TestNodeWithoutReports(t *testing.T) {
	m := newMachine(t, datapathText)
	m.configure(withoutLine(t, m, "report_key"))
	p := m.running(NF)
	if s := m.status(); s.Reports != nil || len(s.Edge.Costs) != 1 {
		t.Errorf("status %+v", s)
	}
	p.end()
	if got := m.happened(); slices.Contains(got, "count run time") {
		t.Errorf("events %q", got)
	}
}

// withoutLine is the machine's configuration without the lines of a key.
func withoutLine(t *testing.T, m *machine, key string) string {
	t.Helper()
	text, err := os.ReadFile(m.file)
	if err != nil {
		t.Fatal(err)
	}
	return regexp.MustCompile(`(?m)^`+key+`:.*\n`).ReplaceAllString(string(text), "")
}
