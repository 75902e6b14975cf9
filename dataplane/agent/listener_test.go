package agent_test

import (
	"net/netip"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"proffer/dataplane/objects"
	"proffer/proof/rig"
	"proffer/topo"
	"proffer/wire"
)

// remembering is an agent with a complete table, which has looked its service's listener up.
type remembering struct {
	*rig.Agent
	t *testing.T
	p rig.Packet
}

func newRemembering(t *testing.T, change ...func(*topo.Offering)) *remembering {
	t.Helper()
	r := rig.NewAgent(t, rig.Hits{}, rig.Offering(rig.HuntPort, append(change, func(o *topo.Offering) { o.Cores = 0 })...))
	complete(t, r)
	return &remembering{r, t, rig.Inward(rig.HuntPort, wire.SYN)}
}

// offers holds the decision on an offer of another flow, and whether the listener was looked up.
func (r *remembering) offers(label, want string, lookedUp bool) {
	r.t.Helper()
	marked := r.found()
	marked.FoundNs-- // a look-up writes the time of now
	if err := r.Objects().Listeners.Put(uint32(0), marked); err != nil {
		r.t.Fatal(err)
	}
	if _, why := verdictOn(r.Agent, r.t, &r.p); why != want {
		r.t.Errorf("%s: %s, want %s", label, why, want)
	}
	if after := r.found(); (after.FoundNs != marked.FoundNs) != lookedUp {
		r.t.Errorf("%s: looked up: %v", label, !lookedUp)
	}
}

func (r *remembering) found() (found objects.AgentRemembered) {
	r.t.Helper()
	if err := r.Objects().Listeners.Lookup(uint32(0), &found); err != nil {
		r.t.Fatal(err)
	}
	return found
}

// TestListenerRemembered: an offer of an unknown flow asks the listener of the offer before, at
// the socket itself: whether it listens, and how many connections it has waiting.
func TestListenerRemembered(t *testing.T) {
	r := newRemembering(t)
	first := rig.Listen(t, rig.HuntPort, 1)
	r.offers("the first offer", "accept_avail", true)
	r.offers("the second", "accept_avail", false)
	rig.Queue(t, first, rig.HuntPort, 2)
	r.offers("its queue is full", "pass_on_full", false)
	rig.Reset(t, first)
	r.offers("it is closed", "pass_on_no_listener", false)
	rig.Listen(t, rig.HuntPort, 128)
	r.offers("another listens", "accept_avail", true)
	r.offers("and is remembered", "accept_avail", false)
	r.At(t, rig.Start+time.Second)
	r.offers("a second later", "accept_avail", true)
}

// TestListenerNarrower: a socket that is bound to the service's address takes the place of one
// that is bound to any, within a second.
func TestListenerNarrower(t *testing.T) {
	r := newRemembering(t)
	wide := rig.Socket(t, netip.AddrPortFrom(netip.IPv6Unspecified(), rig.HuntPort), unix.SO_REUSEPORT)
	if err := unix.Listen(wide, 128); err != nil {
		t.Fatal(err)
	}
	r.offers("any address", "accept_avail", true)
	narrow := rig.Listen(t, rig.HuntPort, 1, unix.SO_REUSEPORT)
	rig.Queue(t, narrow, rig.HuntPort, 2)
	r.offers("the VIP's, at once", "accept_avail", false)
	r.At(t, rig.Start+time.Second)
	r.offers("the VIP's, a second later", "pass_on_full", true)
}

// TestListenerGroup: of a SO_REUSEPORT group the queues of the members of now are added up; where
// one is full, the kernel is asked whether it is the flow's.
func TestListenerGroup(t *testing.T) {
	r := newRemembering(t)
	var members []int
	for range 2 {
		members = append(members, rig.Listen(t, rig.HuntPort, 128, unix.SO_REUSEPORT))
	}
	r.offers("the first offer", "accept_avail", true)
	for i := range 3 {
		rig.Dial(t, uint16(50000+i), rig.HuntPort)
	}
	rig.Queued(t, 3, members...)
	r.offers("3 queued", "accept_avail", false)
	rig.Dial(t, 50003, rig.HuntPort)
	rig.Queued(t, 4, members...)
	r.offers("4 queued", "pass_on_busy", false)
	narrow := rig.Listen(t, rig.HuntPort, 0, unix.SO_REUSEPORT)
	members = append(members, narrow)
	r.offers("a third member", "pass_on_busy", false)
	for port := uint16(50004); ; port++ {
		if info, err := unix.GetsockoptTCPInfo(narrow, unix.IPPROTO_TCP, unix.TCP_INFO); err != nil || port == 50100 {
			t.Fatal("no connection for the third member", err)
		} else if info.Unacked > 0 {
			break
		}
		rig.Dial(t, port, rig.HuntPort)
		time.Sleep(time.Millisecond)
	}
	full := 0
	for range 32 {
		if _, why := verdictOn(r.Agent, t, &r.p); why == "pass_on_full" {
			full++
		} else if why != "pass_on_busy" {
			t.Errorf("by a member that is not full: %s", why)
		}
	}
	if full == 0 || full == 32 {
		t.Errorf("%d of 32 offers met the full member", full)
	}
	for _, fd := range members {
		rig.Reset(t, fd)
	}
	r.offers("all are closed", "pass_on_no_listener", false)
}

// TestListenerElsewhere: a socket of another network namespace, or on another port, is not taken
// for the remembered one, though it may have got its memory.
func TestListenerElsewhere(t *testing.T) {
	other := newRemembering(t)
	rig.Listen(t, rig.HuntPort, 128)
	other.offers("elsewhere", "accept_avail", true)
	theirs := other.found()
	r := newRemembering(t)
	l := rig.Listen(t, rig.HuntPort, 128)
	r.offers("here", "accept_avail", true)
	ours := r.found()
	rig.Reset(t, l)
	ours.Sk = theirs.Sk
	if err := r.Objects().Listeners.Put(uint32(0), ours); err != nil {
		t.Fatal(err)
	}
	r.offers("its memory has a listener of another namespace", "pass_on_no_listener", false)
	ours.Sk = 8 // no memory at all
	if err := r.Objects().Listeners.Put(uint32(0), ours); err != nil {
		t.Fatal(err)
	}
	r.offers("its memory is gone", "pass_on_no_listener", false)
}

// TestListenerOfAnotherService: a service that gets the number of one that is gone does not get its
// listener.
func TestListenerOfAnotherService(t *testing.T) {
	r := newRemembering(t)
	rig.Listen(t, rig.HuntPort, 128)
	r.offers("the first service", "accept_avail", true)
	for _, port := range []uint16{83, 84} { // the second gets the number
		if _, err := r.Offer([]topo.Offering{rig.Offering(port)}); err != nil {
			t.Fatal(err)
		}
		r.p = rig.Inward(port, wire.SYN)
		if _, why := verdictOn(r.Agent, t, &r.p); why != "pass_on_no_listener" {
			t.Errorf("a service without a listener: %s", why)
		}
	}
}
