package daemon

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"proffer/listeners"
	"proffer/topo"
)

// TestListeners: the agent logs the load of each service, the process that listens and the reason,
// once until something changes, and warns of a load that cannot be right there.
func TestListeners(t *testing.T) {
	m := newMachine(t, strings.Replace(agentFile, "load: page, page: /run/load}", "load: apache}\n  - {name: far, vip: 2001:db8:f::4, port: 80, acceptance: always, owner: table}", 1))
	web := topo.VIP{Addr: netip.MustParseAddr("2001:db8:f::1"), Port: 80}
	api := topo.VIP{Addr: netip.MustParseAddr("2001:db8:f::2"), Port: 80}
	listen := func(by map[topo.VIP][]listeners.Process) {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.listens = by
	}
	has := func(line string, parts ...string) {
		t.Helper()
		for _, part := range parts {
			if !strings.Contains(line, part) {
				t.Errorf("the log has no %s: %s", part, line)
			}
		}
	}
	const none = "no process listens"
	p := m.start(Agent)
	has(m.logs(none), "level=INFO", "service=web", "load=work", "listener=none")
	has(m.logs(none), "level=INFO", "service=api", "load=apache", "listener=none")

	nginx := listeners.Process{PID: 7, Name: "nginx", Cgroup: "system.slice/nginx.service"}
	listen(map[topo.VIP][]listeners.Process{web: {nginx}, api: {nginx}})
	m.clock.tick(t, lookEvery)
	has(m.logs("service=web"), "level=INFO", `listener="nginx (process 7, system.slice/nginx.service)"`, "the program has a word of its own: load: nginx")
	const wrong = "load: apache is the word of apache2 or httpd, and another program listens: its requests are not in that count"
	has(m.logs("service=api"), "level=WARN", wrong)
	s := m.status()
	if !slices.Contains(s.Advice, "service api: "+wrong) || s.Services[0].Listener != nginx.String() || s.Services[2].Listener != "" {
		t.Errorf("status: %q, %+v", s.Advice, s.Services)
	}

	httpd := listeners.Process{PID: 9, Name: "httpd", TLS: true}
	listen(map[topo.VIP][]listeners.Process{web: {nginx}, api: {httpd}})
	m.hangup() // after a reload it looks again
	has(m.logs("service=api"), "level=INFO", `listener="httpd (process 9, can speak TLS)"`, "the application's own word")
	m.clock.tick(t, lookEvery)
	m.clock.tick(t, lookEvery) // the look of the first has ended
	broken := m.fail("listeners")
	m.clock.tick(t, lookEvery)
	for {
		line := <-m.lines
		if strings.Contains(line, broken.Error()) {
			break
		}
		if strings.Contains(line, "service=") {
			t.Errorf("logged again: %s", line)
		}
	}
	p.end()
}

// TestNoRecount: work that is not counted again is logged once, and in the advice of status.
func TestNoRecount(t *testing.T) {
	m := newMachine(t, agentFile)
	why := "enter /run/netns/a: operation not permitted: " + topo.Needs("CAP_SYS_ADMIN")
	m.loads.NoRecount = why
	p := m.start(Agent)
	for _, service := range []string{"service=web", "service=api"} {
		for {
			line := <-m.lines
			if strings.Contains(line, "is not counted again") {
				if !strings.Contains(line, "level=WARN") || !strings.Contains(line, service) || !strings.Contains(line, why) {
					t.Error(line)
				}
				break
			}
		}
	}
	m.clock.tick(t, lookEvery)
	m.clock.tick(t, lookEvery) // the look of the first has ended
	if s := m.status(); !slices.Contains(s.Advice, "service web: its work is not counted again: "+why) {
		t.Errorf("status: %q", s.Advice)
	}
	p.end()
	for len(m.lines) > 0 {
		if line := <-m.lines; strings.Contains(line, "is not counted again") {
			t.Errorf("logged again: %s", line)
		}
	}
}

// TestExplain: the loads that cannot be right behind a program, and those that may be.
func TestExplain(t *testing.T) {
	unseen := listeners.Process{}
	page := func(s topo.Source) topo.Offering { return topo.Offering{Measure: topo.Page, Source: s} }
	at := func(port uint16) topo.Offering { return topo.Offering{VIP: topo.VIP{Port: port}} }
	for _, c := range []struct {
		o     topo.Offering
		found listeners.Process
		wrong bool
	}{
		{page(topo.Apache), listeners.Process{PID: 1, Name: "apache2"}, false},
		{page(topo.Apache), listeners.Process{PID: 1, Name: "python3"}, true},
		{page(topo.Apache), unseen, false},
		{page(topo.HAProxy), listeners.Process{PID: 1, Name: "nginx"}, true},
		{page(topo.PHPFPM), listeners.Process{PID: 1, Name: "nginx"}, false},
		{page(topo.Prometheus), listeners.Process{PID: 1, Name: "any"}, false},
		{page(topo.PageSource), listeners.Process{PID: 1, Name: "any"}, false},
		{at(443), listeners.Process{PID: 1, Name: "any", TLS: true}, true},
		{at(443), listeners.Process{PID: 1, Name: "any"}, false},
		{at(80), listeners.Process{PID: 1, Name: "any", TLS: true}, false},
	} {
		if line, reason, warning := explain(&c.o, []listeners.Process{c.found}); (warning != "") != c.wrong || (reason != "") == c.wrong || line == "" {
			t.Errorf("%v, port %d, %v: %q, %q, %q", c.o.Load(), c.o.VIP.Port, c.found, line, reason, warning)
		}
	}
}

// TestManyListeners: the line of a service with many processes stays short.
func TestManyListeners(t *testing.T) {
	found := slices.Repeat([]listeners.Process{{PID: 7, Name: "web"}}, 64)
	line, _, _ := explain(&topo.Offering{}, found)
	if want := strings.Repeat("web (process 7), ", mostNamed-1) + "web (process 7), and 56 more"; line != want {
		t.Errorf("got %q", line)
	}
}
