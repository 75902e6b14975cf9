package daemon

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"proffer/listeners"
	"proffer/topo"
)

const (
	lookEvery = time.Minute
	mostNamed = 8 // processes of a service
)

// listening is the processes behind the agent's services, at the last look.
type listening struct {
	mu    sync.Mutex
	found map[topo.VIP][]listeners.Process
	lines map[topo.VIP]string // a reader's line for each service
	warns map[topo.VIP]string // why the load of a service cannot be right

	missing map[topo.VIP]absence // services without a listener
	looked  time.Duration        // when the last look ended
	looks   sync.Mutex           // a look at a time
	unseen  map[string]string    // why there is no look into a network namespace
}

// processes returns those of a service.
func (l *listening) processes(vip topo.VIP) []listeners.Process {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.found[vip]
}

// of returns the line of a service, and the warning.
func (l *listening) of(vip topo.VIP) (line, warning string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.lines[vip], l.warns[vip]
}

// listeners looks at the processes behind the services now and every minute, until ctx ends.
func (r *agent) listeners(ctx context.Context) error {
	ticks, stop := r.host.Clock.Tick(lookEvery)
	defer stop()
	for {
		r.lookAtListeners()
		r.lookAtCores()
		r.lookAtRecounts()
		select {
		case <-ctx.Done():
			return nil
		case <-ticks:
		case <-r.reloaded:
		}
	}
}

// lookAtListeners logs the load of each service, the process behind it and the reason, when one of
// them has changed.
func (r *agent) lookAtListeners() {
	l := &r.listening
	l.looks.Lock()
	defer l.looks.Unlock()
	services := r.now.Load().Services
	found, err := r.findListeners(services)
	if err != nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.looked = r.host.Clock.Now()
	processes, missing := map[topo.VIP][]listeners.Process{}, map[topo.VIP]absence{}
	lines, warns := map[topo.VIP]string{}, map[topo.VIP]string{}
	for i := range services {
		o := &services[i]
		here, seen := found[o.VIP]
		if !seen {
			continue
		}
		line, reason, warning := explain(o, here)
		lines[o.VIP], warns[o.VIP] = line, warning
		switch {
		case warning != "" && l.warns[o.VIP] != warning:
			r.host.Log.Warn("the load of a service cannot be right", "service", o.Name, "load", o.Load(), "listener", line, "reason", warning)
		case warning == "" && l.lines[o.VIP] != line:
			r.host.Log.Info("the load of a service", "service", o.Name, "load", o.Load(), "listener", line, "reason", reason)
		}
		if o.Owner == topo.Socket {
			processes[o.VIP] = here
		}
		if a, is := r.noteAbsence(o, here); is {
			missing[o.VIP] = a
		}
	}
	l.found, l.lines, l.warns, l.missing = processes, lines, warns, missing
}

// findListeners looks at the processes of all services whose sockets are in sight: the others have no
// entry. An error is that of the agent's own namespace.
func (r *agent) findListeners(services []topo.Offering) (all map[topo.VIP][]listeners.Process, err error) {
	spaces, unseen := map[string][]topo.VIP{}, map[string]string{}
	for i := range services {
		if o := &services[i]; o.Owner != topo.Table {
			spaces[o.Netns] = append(spaces[o.Netns], o.VIP)
		}
	}
	all = map[topo.VIP][]listeners.Process{}
	for space, vips := range spaces {
		found, failed := r.host.Listeners(space, vips)
		if failed != nil {
			if unseen[space] = failed.Error(); r.listening.unseen[space] != failed.Error() {
				r.host.Log.Warn("the processes behind the services cannot be seen", "error", failed)
			}
			if space == "" {
				err = failed
			}
			continue
		}
		for _, vip := range vips {
			all[vip] = found[vip]
		}
	}
	r.listening.unseen = unseen
	return all, err
}

// lookAtRecounts warns of services with work that is never counted again, once for each reason.
func (r *agent) lookAtRecounts() {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := map[topo.VIP]string{}
	for i, o := range r.now.Load().Services {
		l, err := r.plane.Load(i)
		if err != nil || l.NoRecount == "" {
			continue
		}
		now[o.VIP] = l.NoRecount
		if r.unsure[o.VIP] != l.NoRecount {
			r.host.Log.Warn("the work of a service is not counted again, so an error would stay", "service", o.Name, "reason", l.NoRecount)
		}
	}
	r.unsure = now
}

// explain names the processes behind a service, the reason for its load, and why that load cannot
// be right, if it cannot.
func explain(o *topo.Offering, found []listeners.Process) (line, reason, warning string) {
	var names []string
	own := "" // the load that one of the programs reports
	for _, p := range found {
		names = append(names, p.String())
		if s, ok := topo.SourceOf(p.Name); ok {
			own = s.String()
		}
	}
	line = strings.Join(names[:min(len(names), mostNamed)], ", ")
	if more := len(names) - mostNamed; more > 0 {
		line += fmt.Sprintf(", and %d more", more)
	}
	programs := o.Source.Row().Programs
	switch {
	case len(found) == 0:
		return "none", "no process listens", ""
	case o.Measure.Page() && len(programs) > 0 && !slices.ContainsFunc(found, func(p listeners.Process) bool { return p.PID == 0 || slices.Contains(programs, p.Name) }):
		return line, "", fmt.Sprintf("load: %s is the word of %s, and another program listens: its requests are not in that count", o.Load(), strings.Join(programs, " or "))
	case o.Measure.Page():
		return line, "configured: the application's own word", ""
	case o.Measure.Row().Payload && encrypted(o.VIP.Port) && slices.ContainsFunc(found, func(p listeners.Process) bool { return p.TLS }):
		return line, "", fmt.Sprintf("load: %s goes by the direction of payload, which TLS 1.3 and HTTP/2 hide%s", o.Load(), instead(own))
	default:
		return line, "configured, or the default: a measure of the agent's own" + instead(own), ""
	}
}

// instead names the load that a program reports itself.
func instead(own string) string {
	if own == "" {
		return ""
	}
	return "; the program has a word of its own: load: " + own
}

// encrypted reports whether a port is of HTTPS.
func encrypted(port uint16) bool { return port == 443 || port == 8443 }
