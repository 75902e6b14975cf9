package lb_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"proffer/dataplane"
	"proffer/dataplane/objects"
	"proffer/proof/rig"
	"proffer/topo"
	"proffer/wire"
)

// TestLearnedStates: docs/design/learned.md's table of states, each with the flows that count.
func TestLearnedStates(t *testing.T) {
	r := learner(t, rig.Hits{}, learned(5))
	syn, ack, fin, rst := client(0, wire.SYN), client(0, wire.ACK), client(0, wire.FIN|wire.ACK), client(0, wire.RST)
	server := sendTo(t, r, "SYN", syn, -1, "deliver", "flow_begun")
	var took []time.Duration
	step := func(label string, p rig.Packet, established, embryonic uint32, reasons ...string) {
		t.Helper()
		sendTo(t, r, label, p, server, append(reasons, "steer")...)
		took = append(took, wantSeat(t, r, label, server, established, embryonic)...)
	}
	wantSeat(t, r, "SYN", server, 0, 1)
	step("SYN again", syn, 0, 1)
	r.At(t, rig.Start+time.Second)
	step("ACK", ack, 1, 0, "flow_established")
	step("data", payload(ack), 1, 0)
	step("SYN of the same five-tuple", syn, 1, 0)
	r.At(t, rig.Start+3*time.Second)
	step("FIN", fin, 0, 0)
	step("FIN again", fin, 0, 0)
	step("ACK after FIN", ack, 0, 0)
	step("payload after FIN", payload(ack), 1, 0)
	step("RST", rst, 0, 0)
	step("RST again", rst, 0, 0)
	step("ACK after RST", ack, 1, 0)
	step("FIN at last", fin, 0, 0)
	step("SYN after FIN", syn, 0, 0)
	step("ACK of the next connection", ack, 1, 0)
	step("its FIN", fin, 0, 0)
	// The second SYN began the time again, and the payload after the FIN did not.
	unit := time.Duration(1 << objects.DateShift)
	if len(took) != 4 || took[0] < 2*time.Second-unit || took[0] > 2*time.Second+unit || took[3] > unit {
		t.Errorf("durations %v; want four, the first of 2 s and the last of none", took)
	}
	if s := seats(t, r, 0)[server]; s.Begun != 1 || s.Lived != 1 || len(s.Durations) != 0 {
		t.Errorf("%+v; want one flow that came to life, and no duration again", s)
	}
	r.At(t, rig.Start+3*time.Second+r.Cfg.Flows.Linger*2)
	step("payload long after", payload(ack), 1, 0)
	r.At(t, rig.Start+3*time.Second+r.Cfg.Flows.IdleTCP()+time.Minute)
	if swept, err := r.Sweep(); err != nil || swept.Removed != 1 {
		t.Errorf("%d entries removed after idle, %v", swept.Removed, err)
	}
	wantSeat(t, r, "idle", server, 0, 0)
}

// TestLearnedEmbryonic: a flow of a SYN alone, or of a SYN and a RST, does not count for long; FINs
// and RSTs alone make none; data of an unknown flow make one, at the presumed owner.
func TestLearnedEmbryonic(t *testing.T) {
	r := learner(t, rig.Hits{}, learned(5))
	server := sendTo(t, r, "SYN", client(0, wire.SYN), -1, "deliver", "flow_begun")
	sendTo(t, r, "RST", client(0, wire.RST), server, "steer")
	wantSeat(t, r, "RST of a handshake", server, 0, 0)
	r.Table.Empty(t)
	for _, flags := range []byte{wire.FIN | wire.ACK, wire.RST} {
		sendTo(t, r, "a last packet", client(1, flags), -1, "recover_presumed")
	}
	wantSeat(t, r, "last packets alone", 0, 0, 0)
	for i := range 50 {
		sendTo(t, r, "SYN", client(10+i, wire.SYN), -1, "deliver", "flow_begun")
	}
	for i, s := range seats(t, r, 0) {
		if s.Embryonic != 10 {
			t.Errorf("server %d has %d of 50 embryonic flows", i, s.Embryonic)
		}
	}
	r.At(t, rig.Start+11*time.Second)
	if swept, err := r.Sweep(); err != nil || swept.Removed != 50 {
		t.Errorf("%d entries removed, %v", swept.Removed, err)
	}
	wantSeat(t, r, "expired", 0, 0, 0)
	p := client(70, wire.ACK)
	owner := sendTo(t, r, "data", p, -1, "recover_presumed", "flow_begun")
	wantSeat(t, r, "data", owner, 0, 1)
	sendTo(t, r, "more data", p, owner, "flow_established", "steer")
	wantSeat(t, r, "more data", owner, 1, 0)
	sendTo(t, r, "FIN", client(70, wire.FIN|wire.ACK), owner, "steer")
	if took := wantSeat(t, r, "FIN", owner, 0, 0); len(took) != 0 {
		t.Errorf("durations %v of a flow of unknown begin", took)
	}
}

// TestLearnedSilent: a flow without packets does not count after a while, and does again with the
// next one. It stays with its server.
func TestLearnedSilent(t *testing.T) {
	r := learner(t, rig.Hits{}, learned(5))
	svc := &r.Cfg.Services[0]
	if err := r.Spread(svc, dataplane.Spread{Inverses: []uint32{1 << 16, 1 << 16, 1 << 16, 1 << 16, 1 << 16}, Silent: 20 * time.Second}); err != nil {
		t.Fatal(err)
	}
	server := sendTo(t, r, "SYN", client(0, wire.SYN), -1, "deliver", "flow_begun")
	sendTo(t, r, "ACK", client(0, wire.ACK), server, "flow_established", "steer")
	sendTo(t, r, "data", client(0, wire.ACK), server, "steer")
	for _, c := range []struct {
		after       time.Duration
		established uint32
	}{{19 * time.Second, 1}, {21 * time.Second, 0}, {200 * time.Second, 0}} {
		r.At(t, rig.Start+c.after)
		if swept, err := r.Sweep(); err != nil || swept.Kept != 1 {
			t.Errorf("after %v: %d entries, %v", c.after, swept.Kept, err)
		}
		wantSeat(t, r, fmt.Sprint("after ", c.after), server, c.established, 0)
	}
	sendTo(t, r, "an acknowledgement", client(0, wire.ACK), server, "steer")
	wantSeat(t, r, "an acknowledgement", server, 1, 0)
	r.At(t, rig.Start+260*time.Second) // its date is about to wrap
	if _, err := r.Sweep(); err != nil {
		t.Fatal(err)
	}
	sendTo(t, r, "again", client(0, wire.ACK), server, "steer")
	r.At(t, rig.Start+300*time.Second)
	sendTo(t, r, "FIN", client(0, wire.FIN|wire.ACK), server, "steer")
	if took := wantSeat(t, r, "FIN", server, 0, 0); len(took) != 0 {
		t.Errorf("durations %v of a flow that is older than its date tells", took)
	}
}

// TestLearnedTurns: servers that are alike take turns, also where one flow ends before the next
// begins.
func TestLearnedTurns(t *testing.T) {
	const n, rounds = 20, 4
	r := learner(t, rig.Hits{}, learned(n))
	got := make([]int, n)
	for i := range n * rounds {
		if i == n*rounds/2 { // a step of learning in between
			if err := r.Spread(&r.Cfg.Services[0], dataplane.Spread{Inverses: slices.Repeat([]uint32{1 << 16}, n)}); err != nil {
				t.Fatal(err)
			}
		}
		got[serverIn(r.Run(t, client(i, wire.SYN).Frame()).Frame)]++
		r.Run(t, client(i, wire.RST).Frame())
	}
	for i, flows := range got {
		if flows != rounds {
			t.Errorf("server %d had %d of %d flows", i, flows, n*rounds)
		}
	}
}

// TestLearnedAges: with learned:ages the age of a flow is sampled at the first packet of each tick of
// its date, and its duration at the end; with learned it is not.
func TestLearnedAges(t *testing.T) {
	for d, want := range map[topo.Dispatch][]time.Duration{
		topo.LearnedAges: {2 * time.Second, 3 * time.Second, 4 * time.Second}, topo.Learned: {4 * time.Second},
	} {
		r := learner(t, rig.Hits{}, learned(1, func(s *topo.Service) { s.Dispatch = d }))
		r.Run(t, client(0, wire.SYN).Frame())
		var took []time.Duration
		for _, after := range []time.Duration{time.Second, 2 * time.Second, 3 * time.Second} {
			r.At(t, rig.Start+after)
			for range 5 {
				r.Run(t, client(0, wire.ACK).Frame())
			}
			took = append(took, seats(t, r, 0)[0].Durations...)
		}
		r.At(t, rig.Start+4*time.Second)
		r.Run(t, client(0, wire.FIN|wire.ACK).Frame())
		took = append(took, seats(t, r, 0)[0].Durations...)
		near := func(a, b time.Duration) bool { return a > b-5*time.Millisecond && a < b+5*time.Millisecond }
		if !slices.EqualFunc(took, want, near) {
			t.Errorf("%v: samples %v, want %v", d, took, want)
		}
	}
}

// TestLearnedPool: servers that drain or lose their next hop get no new flows and keep those that
// they have; joining servers get flows; without a server left there are none.
func TestLearnedPool(t *testing.T) {
	r := learner(t, rig.Hits{}, learned(4))
	at := map[int]int{}
	for i := range 40 {
		at[i] = sendTo(t, r, "SYN", client(i, wire.SYN), -1, "deliver", "flow_begun")
		sendTo(t, r, "ACK", client(i, wire.ACK), at[i], "flow_established", "steer")
	}
	r.Cfg.Services = []topo.Service{learned(6, drained(1))}
	if err := r.Configure(r.Cfg); err != nil {
		t.Fatal(err)
	}
	hopsOf(t, r)
	for i := range 40 {
		sendTo(t, r, "data", client(i, wire.ACK), at[i], "steer")
	}
	got := map[int]int{}
	for i := range 24 {
		got[sendTo(t, r, "SYN", client(100+i, wire.SYN), -1, "deliver", "flow_begun")]++
	}
	if got[1] != 0 || got[4] < 10 || got[5] < 10 {
		t.Errorf("new flows at %v: server 1 drains, and 4 and 5 are new", got)
	}
	for i, s := range seats(t, r, 0) {
		if want := uint32(10); i < 4 && s.Established != want {
			t.Errorf("server %d has %d flows, want %d", i, s.Established, want)
		}
	}
	r.Cfg.Services = []topo.Service{learned(1, drained(0))}
	if err := r.Configure(r.Cfg); err != nil {
		t.Fatal(err)
	}
	if out := r.Send(t, client(200, wire.SYN).Frame()); out.Action != rig.XDPDrop {
		t.Errorf("all servers drain: action %d for %v", out.Action, out.Reasons)
	}
	moved := 0
	for i := range 40 {
		if at[i] != 0 {
			moved += len(r.Send(t, client(i, wire.ACK).Frame()).Reasons)
		}
	}
	wantSeat(t, r, "others left", 0, 10, seats(t, r, 0)[0].Embryonic)
	if moved == 0 {
		t.Error("no server left")
	}
}
