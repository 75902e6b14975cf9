package farm

import (
	"fmt"
	"io"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"proffer/e2e/kit"
	"proffer/lab/farmrun"
	"proffer/lab/testbed"
	"proffer/topo"
)

// TestOperatorsMonth: a server dies and comes back, another is drained and then switched off, and the LB's link
// flaps, while clients come all the time, a third of them with a datagram. No TCP client fails. Once the LB calls
// a server down, every flow of datagrams is served, and each new flow has the answer to its first one; also as soon
// as a server that drains has left checks without an answer. In every mode; in `stateless` alone, which counts no
// connections; and where there are none.
func TestOperatorsMonth(t *testing.T) {
	for _, c := range []struct {
		name  string
		modes []topo.Dispatch
		over  []topo.Protocol
	}{
		{"every mode", topo.Dispatches(), []topo.Protocol{topo.TCP, topo.UDP}},
		{"stateless", []topo.Dispatch{topo.Stateless}, []topo.Protocol{topo.TCP, topo.UDP}},
		{"datagrams", topo.Dispatches(), []topo.Protocol{topo.UDP}},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := newMonth(t, c.modes, c.over)
			m.goes(t)
		})
	}
}

// month is a farm with services of some modes and protocols, in both families.
type month struct {
	bed     *testbed.Bed
	farm    *farmrun.Farm
	vips    []topo.VIP
	modes   []topo.Dispatch // of each VIP
	drained bool            // the third server is

	kept map[topo.VIP]net.Conn // flows of datagrams

	gaps [][2]time.Time // in which datagrams may be lost

	mu    sync.Mutex
	calls []call
}

// call is a request of a new flow.
type call struct {
	to    topo.VIP
	began time.Time
	err   error
}

func newMonth(t *testing.T, modes []topo.Dispatch, over []topo.Protocol) *month {
	m := &month{bed: kit.Up(t, testbed.Config{Servers: 4}), kept: map[topo.VIP]net.Conn{}}
	for i, mode := range modes {
		for j, protocol := range over {
			for vip := range kit.Families(m.bed) {
				if len(modes)*len(over) > 31 && vip.Is4() == ((i+j)%2 == 0) {
					continue // at most 31 services have a tally
				}
				m.vips = append(m.vips, topo.VIP{Addr: vip, Port: uint16(testbed.Port + 1 + i), Protocol: protocol})
				m.modes = append(m.modes, mode)
			}
		}
	}
	s := kit.Settings(t, "hunt:always")
	s.LB = m.services
	s.Agent = func(_ *testbed.Node, a *topo.Agent) {
		like := a.Services[0]
		a.Services = nil
		for i, vip := range m.vips {
			like.Name, like.VIP = fmt.Sprint("s", i), vip
			a.Services = append(a.Services, like)
		}
	}
	kit.OneSegment(t, m.bed)
	for _, n := range m.bed.Servers {
		for _, vip := range m.vips {
			m.serve(t, n, vip)
		}
	}
	m.farm = kit.Start(t, m.bed, s)
	return m
}

// services gives an LB all services. Those of TCP ask agents for the flows that they do not know, and one of
// datagrams.
func (m *month) services(lb *topo.LB) {
	like := lb.Services[0]
	lb.Services = nil
	for i, vip := range m.vips {
		svc := topo.Service{Name: fmt.Sprint("s", i), VIP: vip, Dispatch: m.modes[i], Buckets: 251, Servers: slices.Clone(like.Servers)}
		if svc.Dispatch.Offers() {
			svc.Choices = 2
		}
		if svc.Dispatch.Recovers() && (vip.Protocol == topo.TCP || vip.Addr.Is4() && !svc.Dispatch.Seats()) {
			svc.Recovery = topo.AgentsRecovery
		}
		if svc.Dispatch.Learns() {
			svc.LearnEvery = time.Second
		}
		if m.drained {
			svc.Servers[2].Weight = 0
		}
		lb.Services = append(lb.Services, svc)
	}
}

// serve answers on a server: a line, or a datagram.
func (m *month) serve(t *testing.T, n *testbed.Node, vip topo.VIP) {
	if vip.Protocol == topo.UDP {
		var c net.PacketConn
		err := n.Do(func() (err error) {
			c, err = net.ListenPacket("udp", netip.AddrPortFrom(vip.Addr, vip.Port).String())
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		go func() {
			data := make([]byte, 100)
			for {
				n, from, err := c.ReadFrom(data)
				if err != nil {
					return
				}
				_, _ = c.WriteTo(data[:n], from)
			}
		}()
		return
	}
	l, err := n.Listen("tcp", netip.AddrPortFrom(vip.Addr, vip.Port).String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				data := make([]byte, 1)
				if _, err := io.ReadFull(c, data); err == nil {
					_, _ = c.Write(data)
				}
			}()
		}
	}()
}

// dial opens a connection to a service, or a flow of datagrams.
func (m *month) dial(t *testing.T, vip topo.VIP) (net.Conn, error) {
	return m.bed.Client.DialContext(t.Context(), strings.ToLower(vip.Protocol.String()), netip.AddrPortFrom(vip.Addr, vip.Port).String())
}

// sayTo sends a byte, and waits for the answer.
func sayTo(c net.Conn, within time.Duration) error {
	c.SetDeadline(time.Now().Add(within))
	if _, err := c.Write([]byte("x")); err != nil {
		return err
	}
	_, err := io.ReadFull(c, make([]byte, 1))
	return err
}

// one is a request of a new flow.
func (m *month) one(t *testing.T, vip topo.VIP) error {
	o := call{to: vip, began: time.Now()}
	c, err := m.dial(t, vip)
	if o.err = err; err == nil {
		o.err = sayTo(c, 5*time.Second)
		c.Close()
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.calls = append(m.calls, o)
	return o.err
}

// clients come until the test ends, two of three with a connection. A machine that is too slow for 50 a second gets
// fewer.
func (m *month) clients(t *testing.T) (stop func()) {
	var both sync.WaitGroup
	ends := make(chan struct{})
	under := make(chan struct{}, 100)
	kinds := map[topo.Protocol][]topo.VIP{}
	for _, vip := range m.vips {
		kinds[vip.Protocol] = append(kinds[vip.Protocol], vip)
	}
	both.Go(func() {
		for i := 0; ; i++ {
			list := kinds[topo.TCP]
			if i%3 == 0 || len(list) == 0 {
				list = kinds[topo.UDP]
			}
			select {
			case <-ends:
				return
			case under <- struct{}{}:
				both.Go(func() { _ = m.one(t, list[i/3%len(list)]); <-under })
			}
			time.Sleep(20 * time.Millisecond)
		}
	})
	return sync.OnceFunc(func() { close(ends); both.Wait() })
}

func (m *month) goes(t *testing.T) {
	lb, dead, off := m.bed.LBs[0], m.bed.Servers[1], m.bed.Servers[2]
	stop := m.clients(t)
	t.Cleanup(stop)
	for _, vip := range m.vips {
		if vip.Protocol == topo.UDP {
			c, err := m.dial(t, vip)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { c.Close() })
			kit.Eventually(t, "a flow is answered", func() bool { return sayTo(c, time.Second) == nil })
			m.kept[vip] = c
		}
	}
	link := func(n *testbed.Node, is string) { kit.In(t, m.bed.Router, "ip", "link", "set", n.Link, is) }

	m.gap(func() {
		link(dead, "down")
		m.isDown(t, dead)
	})
	m.served(t, dead.Name+" died")
	link(dead, "up")
	kit.Eventually(t, dead.Name+" is back", func() bool { return healthOf(t, m.farm, dead.Name).State == "answers" })
	m.served(t, dead.Name+" is back")

	m.drained = true
	if err := m.farm.Reload(t.Context(), lb); err != nil {
		t.Fatal(err)
	}
	m.served(t, off.Name+" drains")
	m.gap(func() {
		link(off, "down")
		m.inDoubt(t)
	})
	m.newServed(t, off.Name+" is off, and in doubt")
	m.isDown(t, off)
	m.served(t, off.Name+" is off")

	m.gap(func() {
		link(lb, "down")
		time.Sleep(100 * time.Millisecond)
		link(lb, "up")
		for vip, c := range m.kept {
			kit.Eventually(t, fmt.Sprint("a flow of ", vip, " goes on after the flap"), func() bool { return sayTo(c, time.Second) == nil })
		}
	})
	m.served(t, "the LB's link flapped")
	stop()
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, o := range m.calls {
		if o.err != nil && !m.excused(o) {
			t.Errorf("a client of %v, at %v, failed: %v; gaps %v", o.to, o.began, o.err, m.gaps)
		}
	}
}

// gap is a time in which datagrams may be lost.
func (m *month) gap(during func()) {
	from := time.Now()
	during()
	m.gaps = append(m.gaps, [2]time.Time{from, time.Now()})
}

// excused: a datagram that was sent in a gap, or so shortly before that a busy machine may not have delivered it.
func (m *month) excused(o call) bool {
	return o.to.Protocol == topo.UDP && slices.ContainsFunc(m.gaps, func(g [2]time.Time) bool {
		return o.began.Before(g[1]) && o.began.Add(time.Second).After(g[0])
	})
}

// isDown waits until the LB calls a server down.
func (m *month) isDown(t *testing.T, n *testbed.Node) {
	kit.Eventually(t, n.Name+" is down", func() bool { return healthOf(t, m.farm, n.Name).State == "down" })
}

// inDoubt waits until a server has left checks without an answer.
func (m *month) inDoubt(t *testing.T) {
	lb := m.bed.LBs[0]
	lost := func() uint64 {
		return kit.Counter(t, m.farm, "check", lb) - kit.Counter(t, m.farm, "check_answered", lb)
	}
	before := lost()
	kit.Eventually(t, "checks are lost", func() bool { return lost() >= before+6 })
}

// served wants an answer to each flow of before, and to new ones.
func (m *month) served(t *testing.T, when string) {
	for vip, c := range m.kept {
		if err := sayTo(c, 5*time.Second); err != nil {
			t.Errorf("%s: a flow of before, of %v: %v", when, vip, err)
		}
	}
	m.newServed(t, when)
}

// newServed wants an answer to the first datagram of new flows, and to a connection.
func (m *month) newServed(t *testing.T, when string) {
	for i, vip := range m.vips {
		for range 3 {
			if err := m.one(t, vip); err != nil {
				t.Errorf("%s: a new flow of %v, %v: %v", when, m.modes[i], vip, err)
			}
		}
	}
}
