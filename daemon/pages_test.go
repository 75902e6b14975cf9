package daemon

import (
	"errors"
	"testing"
	"time"

	"proffer/api"
)

// TestPages: reports are copied by the daemon's clock, and status shows an
// application's word and its age.
func TestPages(t *testing.T) {
	m := newMachine(t, agentFile)
	m.clock.set(7 * time.Second)
	p := m.running(Agent)
	for range 2 { // the first report has ended when the second begins
		m.clock.tick(t, time.Millisecond)
	}
	m.mu.Lock()
	if len(m.reports) != 1 || m.reports[1] != 3 {
		t.Errorf("reports by service: %v, want 3 of service 1", m.reports)
	}
	m.mu.Unlock()
	services := m.status().Services
	if web := services[0]; web.Load.Word != nil || web.Mode != "static:4, load work" || web.Load.Threshold != 4 {
		t.Errorf("a service without page: %+v, %+v", web, web.Load)
	}
	want := api.WordStatus{Source: "page", From: "/run/load", Busy: 3, Workers: 8, Age: 2}
	if api := services[1].Load; api.Word == nil || *api.Word != want || api.Asking != 1 {
		t.Errorf("a service with a page: %+v, %+v", api, api.Word)
	}
	p.end()
	if !m.page.closed {
		t.Error("the page stays open")
	}
}

// TestPagesFail: an agent that cannot see its load any more ends.
func TestPagesFail(t *testing.T) {
	m := newMachine(t, agentFile)
	p := m.running(Agent)
	want := m.fail("report")
	m.clock.tick(t, time.Millisecond)
	if err := p.wait(); !errors.Is(err, want) {
		t.Errorf("it ended with: %v", err)
	}
	if events := m.happened(); events[len(events)-1] != "close" {
		t.Errorf("events: %q", events)
	}
}

// TestPageCannotBeOpened: no plane is loaded for a service of unknown load.
func TestPageCannotBeOpened(t *testing.T) {
	m := newMachine(t, agentFile)
	want := m.fail("open /run/load")
	if err := m.start(Agent).wait(); !errors.Is(err, want) {
		t.Errorf("it ended with: %v", err)
	}
	m.wantEvents("preflight", "open /run/load")
}

// TestPasswordOfAnEndpoint: status does not show it.
func TestPasswordOfAnEndpoint(t *testing.T) {
	for from, want := range map[string]string{
		"http://web:secret@127.0.0.1/status": "http://web:xxxxx@127.0.0.1/status",
		"http://127.0.0.1/status?a=b":        "http://127.0.0.1/status?a=b",
		"unix:/run/php.sock":                 "unix:/run/php.sock",
		"/run/apache2/apache2.pid":           "/run/apache2/apache2.pid",
	} {
		if got := withoutSecret(from); got != want {
			t.Errorf("%s: got %s, want %s", from, got, want)
		}
	}
}
