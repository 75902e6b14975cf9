package daemon

import (
	"errors"
	"net/netip"
	"strings"
	"testing"
	"time"

	"proffer/report"
	"proffer/topo"
	"proffer/weights"
	"proffer/wire"
)

// pollingFile is learningFile with another mode.
func pollingFile(dispatch string) string {
	return strings.Replace(learningFile(), "dispatch: learned", "dispatch: "+dispatch, 1)
}

var (
	webVIP    = topo.VIP{Addr: netip.MustParseAddr("2001:db8:f::1"), Port: 80}
	lbAt      = netip.MustParsePrefix("5f00:0:1:1::/64")
	serversAt = []netip.Prefix{netip.MustParsePrefix("5f00:0:2:1::/64"), netip.MustParsePrefix("5f00:0:2:2::/64")}
)

// answers has the agents of some servers answer the requests of a round; the others are silent.
func (m *machine) answers(t *testing.T, busy map[int]float64) {
	t.Helper()
	for range serversAt {
		var p packet
		select {
		case p = <-m.line.sent:
		case <-time.After(patience):
			t.Fatal("no request was sent")
		}
		for i, at := range serversAt {
			if p.at != report.At(at) {
				continue
			}
			agent := topo.Node{Locator: at}
			ask, lb, ok := report.Asked(&agent, wire.Own(lbAt), p.b)
			if !ok || lb != lbAt || ask.VIP != webVIP {
				t.Fatalf("request %+v of %v, %v", ask, lb, ok)
			}
			if n, known := busy[i]; known {
				ask.Known, ask.Report = true, weights.Report{Busy: n, Workers: 32, Cores: 2}
				m.line.arrives <- packet{netip.AddrPortFrom(wire.Own(at), report.Port), report.Reply(&agent, lb, ask)}
			}
		}
	}
}

// wantSoon waits until a condition holds.
func wantSoon(t *testing.T, label string, is func() bool) {
	t.Helper()
	for late := time.Now().Add(patience); !is(); time.Sleep(time.Millisecond) {
		if time.Now().After(late) {
			t.Fatal(label)
		}
	}
}

// TestPollsQueues: for gsq2 the agents are asked each 5 ms, and the plane gets the requests in hand; a
// silent server counts as the average, which the log and the status explain, until it answers again.
func TestPollsQueues(t *testing.T) {
	m := newMachine(t, pollingFile("gsq2"))
	p := m.running(LB)
	now := time.Duration(0)
	set := func(after time.Duration) { now += after; m.clock.set(now) }
	set(time.Second)
	m.clock.tick(t, readEvery)
	m.clock.tick(t, readEvery) // the one before has ended
	m.clock.tick(t, noPoll)
	ask := func(after time.Duration) { set(after); m.clock.tick(t, 5*time.Millisecond) }
	queue := func(server int, want uint32) {
		t.Helper()
		wantSoon(t, "the plane does not get a queue", func() bool {
			m.mu.Lock()
			defer m.mu.Unlock()
			return m.queues[server].Requests == want
		})
	}
	m.answers(t, map[int]float64{0: 7, 1: 9})
	queue(0, 7)
	queue(1, 9)
	for range 5 {
		ask(time.Second)
		m.answers(t, map[int]float64{0: 3})
		queue(0, 3)
	}
	m.logs(`msg="a server does not report its load, and counts as average" service=web server=s2`)
	ask(time.Second)
	m.answers(t, map[int]float64{0: 4})
	queue(0, 4)
	ask(time.Second)
	queue(1, 4)
	m.answers(t, map[int]float64{0: 4})
	set(time.Second)
	m.clock.tick(t, readEvery)
	m.clock.tick(t, readEvery)
	s := m.status().Services[0].Learning
	if s == nil || !strings.Contains(s.Servers[0].Why, "4 requests in hand, of 32 workers and 2 cores") || !strings.Contains(s.Servers[1].Why, "(no answer): average assumed") {
		t.Errorf("status: %+v", s)
	}
	ask(time.Second)
	m.answers(t, map[int]float64{0: 4, 1: 1})
	queue(1, 1)
	m.logs(`msg="a server reports its load again" service=web server=s2`)
	m.mu.Lock()
	m.fails["begun"] = errors.New("no such map")
	m.mu.Unlock()
	ask(time.Second)
	m.logs(`level=ERROR msg="ask agents for their loads" error="no such map"`)
	p.end()
	select {
	case <-m.line.closed:
	default:
		t.Error("the socket is open after the end")
	}
}

// TestPollsReload: where a reload has new flows follow the requests in hand, the plane has those that agents
// reported to the mode before, as soon as the status has them. The agents are asked at once, not when the
// mode before would have asked again.
func TestPollsReload(t *testing.T) {
	m := newMachine(t, pollingFile("wrr-feedback"))
	p := m.running(LB)
	why := func() string {
		if s := m.status().Services[0].Learning; s != nil {
			return s.Servers[0].Why
		}
		return ""
	}
	m.clock.set(time.Second)
	m.clock.tick(t, readEvery)
	m.clock.tick(t, readEvery)
	m.clock.tick(t, noPoll)
	m.answers(t, map[int]float64{0: 7, 1: 9})
	wantSoon(t, "no report", func() bool { return strings.Contains(why(), "7 requests in hand") })
	m.change("dispatch: wrr-feedback", "dispatch: gsq2")
	m.hangup()
	m.logs("configuration reloaded")
	queues := func(a, b uint32) bool {
		m.mu.Lock()
		defer m.mu.Unlock()
		return m.queues[0].Requests == a && m.queues[1].Requests == b
	}
	wantSoon(t, "the report is lost", func() bool { return strings.Contains(why(), "7 requests in hand") })
	if !queues(7, 9) {
		t.Errorf("the plane has the queues %v, want 7 and 9", m.queues)
	}
	m.answers(t, map[int]float64{0: 3, 1: 2})
	wantSoon(t, "the plane does not get a new report", func() bool { return queues(3, 2) })
	p.end()
}

// TestPollsWeights: awcmp spreads by cores / (1 + requests in hand), wrr-feedback by the busy workers; an
// answer that was not asked for changes nothing.
func TestPollsWeights(t *testing.T) {
	for dispatch, want := range map[string]float64{"awcmp": (2. / 10) / (2. / 2), "wrr-feedback": (0.1 + 0.9*weights.Exp(-8*81./1024)) / (0.1 + 0.9*weights.Exp(-8./1024))} {
		m := newMachine(t, pollingFile(dispatch))
		p := m.running(LB)
		tick := func(at time.Duration) {
			m.clock.set(at)
			m.clock.tick(t, readEvery)
			m.clock.tick(t, readEvery)
			m.clock.tick(t, noPoll)
		}
		tick(time.Second)
		m.answers(t, map[int]float64{0: 9, 1: 1})
		agent := topo.Node{Locator: serversAt[0]}
		m.line.arrives <- packet{netip.AddrPortFrom(wire.Own(serversAt[0]), report.Port), report.Reply(&agent, lbAt, report.Message{VIP: webVIP, Nonce: 1, Known: true, Report: weights.Report{Workers: 1, Cores: 99}})}
		at, got := time.Second, 0.0
		wantSoon(t, dispatch+": no weights by reports", func() bool {
			at += time.Millisecond
			m.clock.set(at)
			select {
			case m.clock.of(readEvery) <- time.Time{}:
			case <-time.After(10 * time.Millisecond):
			}
			last, _ := m.lastSpread()
			if len(last.Shares) != 2 {
				return false
			}
			got = last.Shares[0] / last.Shares[1]
			return got < want+1e-9 && got > want-1e-9
		})
		p.end()
	}
}

// TestReportsLoad: an agent answers a request for a service of its own by its load, and one for
// another without, as by a load measure that does not see these flows; others, and too many, it does
// not answer, and counts.
func TestReportsLoad(t *testing.T) {
	m := newMachine(t, agentFile)
	m.loads.Known, m.loads.Busy, m.loads.Measure = true, 5, topo.Sockets
	p := m.running(Agent)
	lb := topo.Node{Locator: lbAt}
	agentAt := netip.MustParsePrefix(m.status().Locator)
	from := netip.AddrPortFrom(wire.Own(lbAt), 7777)
	ask := func(vip topo.VIP, nonce uint64) report.Message {
		t.Helper()
		m.line.arrives <- packet{from, report.Ask(&lb, agentAt, vip, nonce)}
		select {
		case sent := <-m.line.sent:
			answer, server, ok := report.Answered(&lb, wire.Own(agentAt), sent.b)
			if !ok || server != agentAt || answer.Nonce != nonce || answer.VIP != vip || sent.at != from {
				t.Fatalf("answer %+v of %v to %v, %v", answer, server, sent.at, ok)
			}
			return answer
		case <-time.After(patience):
			t.Fatal("no answer")
		}
		return report.Message{}
	}
	served := m.status().Services[0].VIP
	at := netip.MustParseAddrPort(served)
	own := topo.VIP{Addr: at.Addr(), Port: at.Port()}
	if a := ask(own, 3); !a.Known || a.Report.Busy != 5 || a.Report.Workers != 32 || a.Report.Cores < 1 {
		t.Errorf("answer %+v, want the load of %s", a, served)
	}
	if a := ask(topo.VIP{Addr: at.Addr(), Port: 9}, 4); a.Known {
		t.Errorf("answer %+v about a service that the agent has not", a)
	}
	m.mu.Lock()
	m.loads.Measure = topo.Busy
	m.mu.Unlock()
	if a := ask(own, 6); a.Known {
		t.Errorf("answer %+v by a measure that sees no flow of these modes", a)
	}
	m.line.arrives <- packet{from, []byte("nonsense")}
	for range 500 { // at one instant
		m.line.arrives <- packet{from, report.Ask(&lb, agentAt, own, 5)}
	}
	wantSoon(t, "not all datagrams are counted", func() bool {
		r := m.status().Reports
		return r.Refused == 1 && r.Answered == 400 && r.Limited == 103
	})
	p.end()
}

// TestReportsWithoutSocket: an agent that cannot open the socket serves all the same.
func TestReportsWithoutSocket(t *testing.T) {
	m := newMachine(t, agentFile)
	m.fail("open reports")
	p := m.running(Agent)
	m.logs(`msg="no LB gets this server's load" error="open reports is broken"`)
	m.status()
	p.end()
}
