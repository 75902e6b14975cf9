package guests

import (
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"proffer/e2e/kit"
	"proffer/lab/testbed"
)

// TestCookies: a server that answers by SYN cookies keeps nothing, so the ACK
// alone tells whose a connection is, and only to the kernel that made the
// cookie. All namespaces of a machine share one secret; two guests have two.
func TestCookies(t *testing.T) {
	// Each server has some of them, by the bed's fixed key, and room for all at
	// once: busybox's httpd asks for a backlog of 9, and no client here repeats.
	const flows = 8
	f := upCookies(t)
	f.accept(t, "static:0")
	f.wantServed(t, flows)
	f.wantTwoSecrets(t, handshakes(t, f.bed, 42000, flows))

	// The last candidate has every flow.
	if passedOn := f.wantRecovered(t, handshakes(t, f.bed, 43000, flows)); passedOn != flows {
		t.Errorf("the first candidates passed %d flows on, want all %d", passedOn, flows)
	}
	// The first candidate has every flow.
	f.accept(t, "static:1000")
	if passedOn := f.wantRecovered(t, handshakes(t, f.bed, 44000, flows)); passedOn != 0 {
		t.Errorf("the first candidates passed %d flows on, want none", passedOn)
	}
	// The SYN comes twice and is offered in another order the second time, so that
	// both servers accept some of the flows; the client took the second answer.
	h := handshakes(t, f.bed, 45000, flows)
	key := f.candidateKey(t, strings.Repeat("5a", 16))
	f.restartLB(t)
	h.open(t)
	f.candidateKey(t, key)
	if passedOn := f.wantRecovered(t, h); passedOn == 0 || passedOn == flows {
		t.Errorf("the first candidates passed %d flows on, want some of %d", passedOn, flows)
	}
}

// wantServed: connections under cookies work as any do.
func (f *cookieFarm) wantServed(t *testing.T, flows int) {
	t.Helper()
	by := map[string]int{}
	for i := range flows {
		by[kit.In(t, f.bed.Client, "curl", "-sS", "--fail", "--local-port", strconv.Itoa(41000+i), kit.URL+"/name")]++
	}
	if len(by) != len(f.guests) {
		t.Errorf("%d connections were served by %v, want both servers", flows, by)
	}
	if c := f.cookies(t); c.sent < flows || c.received != flows || c.failed != 0 {
		t.Errorf("cookies of %d connections: %+v", flows, c)
	}
}

// wantTwoSecrets: what makes the rest of this test mean anything. When one
// guest gets every ACK as it is, its kernel takes its own cookies and resets
// the connections of the other.
func (f *cookieFarm) wantTwoSecrets(t *testing.T, h *byHand) {
	t.Helper()
	before := f.cookies(t)
	route := func(to *testbed.Node) {
		kit.In(t, f.bed.Router, "ip", "-6", "route", "replace", f.bed.VIP.String(), "via", to.Addr.String(), "dev", to.Link)
	}
	route(f.bed.Servers[0])
	h.ask(t)
	served, reset := h.wait(t)
	route(f.bed.LBs[0])
	if served == 0 || reset == 0 {
		t.Errorf("one of two kernels took %d connections and reset %d", served, reset)
	}
	if c := f.cookies(t).minus(before); c.received != served || c.failed != reset {
		t.Errorf("%d connections were served, %d reset, but the kernels count %+v", served, reset, c)
	}
}

// wantRecovered: the LB forgets all flows while their handshakes wait for the
// ACK, and asks the candidates. Every connection is its owner's alone: a
// listener owns it whose kernel made the cookie and whose agent accepted the
// offer. It returns how often an agent passed on what was not its own.
func (f *cookieFarm) wantRecovered(t *testing.T, h *byHand) (passedOn int) {
	t.Helper()
	lb, flows := f.bed.LBs[0], len(h.flows)
	f.restartLB(t)
	f.pauseLB(t, unix.SIGSTOP) // else its checks of quiet servers are passed on, too
	cookies, counters := f.cookies(t), f.counters(t)
	h.ask(t)
	if served, reset := h.wait(t); served != flows || reset != 0 {
		t.Errorf("of %d connections %d were served and %d reset", flows, served, reset)
	}
	if c := f.cookies(t).minus(cookies); c.received != flows || c.failed != 0 {
		t.Errorf("cookies of %d connections: %+v", flows, c)
	}
	now := f.counters(t)
	f.pauseLB(t, unix.SIGCONT)
	asked, learnt := kit.Counter(t, f.farm, "recover", lb), kit.Counter(t, f.farm, "stickiness_recovered", lb)
	if asked != uint64(flows) || learnt != uint64(flows) {
		t.Errorf("the new LB asked for %d flows and learnt %d, want %d", asked, learnt, flows)
	}
	since := func(name string) int {
		value, ok := now[name]
		if !ok {
			t.Fatalf("the agents have no counter %q", name)
		}
		return int(value - counters[name])
	}
	if recovered, unowned := since("recovered"), since("unowned"); recovered != flows || unowned != 0 {
		t.Errorf("the agents found %d flows theirs and %d without an owner, want %d and 0", recovered, unowned, flows)
	}
	return since("pass_on_not_mine")
}

// pauseLB stops the LB's daemon, or lets it go on. Its programs go on all the time.
func (f *cookieFarm) pauseLB(t *testing.T, s unix.Signal) {
	t.Helper()
	if err := f.lb.Signal(s); err != nil {
		t.Fatal(err)
	}
}
