package daemon

import (
	"fmt"
	"time"

	"proffer/listeners"
	"proffer/topo"
)

// listenWithin is how long a new service may be without a listener before that is a problem: its
// application may start later than the agent.
const listenWithin = 10 * time.Second

// absence is that of a listener at a service's VIP and port.
type absence struct {
	since time.Duration // when a look saw that first
	had   bool          // there was one before
	told  bool          // the log has it
}

func (a absence) isProblem(now time.Duration) bool { return a.had || now-a.since >= listenWithin }

// of tells an operator of it.
func (a absence) of(o *topo.Offering) string {
	where, when := "", "yet"
	if o.Owner == topo.Netns {
		where = " in " + o.Netns
	}
	if a.had {
		when = "any more"
	}
	return fmt.Sprintf("service %s: no process listens at %v%s %s: start its application, which may listen at the wildcard, too", o.Name, o.VIP, where, when)
}

// noteAbsence is the absence of a service's listener at a look, if there is none. It logs that the last
// listener is gone, that none came in time, and that there is a listener again.
func (r *agent) noteAbsence(o *topo.Offering, found []listeners.Process) (a absence, is bool) {
	l := &r.listening
	a, was := l.missing[o.VIP]
	if len(found) > 0 {
		if a.told {
			r.host.Log.Info("a process listens for the service again", "service", o.Name, "vip", o.VIP)
		}
		return a, false
	}
	if !was {
		_, looked := l.lines[o.VIP]
		a = absence{since: l.looked, had: looked}
	}
	if !a.told && a.isProblem(l.looked) {
		a.told = true
		r.host.Log.Warn("a service has no listener", "problem", a.of(o))
	}
	return a, true
}

// absent lists the problems of services without a listener. It looks again if the last look is old.
func (r *agent) absent() (all []string) {
	l := &r.listening
	now := r.host.Clock.Now()
	l.mu.Lock()
	old := now-l.looked >= coresEvery
	l.mu.Unlock()
	if old {
		r.lookAtListeners()
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	services := r.now.Load().Services
	for i := range services {
		if a, is := l.missing[services[i].VIP]; is && a.isProblem(now) {
			all = append(all, a.of(&services[i]))
		}
	}
	return all
}

// anyMissing reports whether the last look found a service without a listener.
func (l *listening) anyMissing() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.missing) > 0
}
