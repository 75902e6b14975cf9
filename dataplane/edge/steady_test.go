package edge_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"reflect"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"proffer/dataplane/edge"
	"proffer/dataplane/objects"
	"proffer/proof/rig"
	"proffer/topo"
	"proffer/wire"
)

// onOneCPU keeps the test's thread, which is locked, on a CPU: recent flows are each CPU's.
func onOneCPU(t *testing.T) {
	t.Helper()
	var was, one unix.CPUSet
	must(t, unix.SchedGetaffinity(0, &was))
	for cpu := range 1024 {
		if was.IsSet(cpu) {
			one.Set(cpu)
			break
		}
	}
	must(t, unix.SchedSetaffinity(0, &one))
}

// randomFlow is one of few flows of the client network, or its other direction, before NAT or after it.
func randomFlow(rng *rand.Rand) (f flow, ofWorld bool) {
	f = rig.AnyOf(rng, from4, from6)(rig.AnyOf(rng, "tcp", "tcp", "udp", "udp", "echo"), 1000+rng.IntN(3))
	if f.kind == "echo" {
		f.to = netip.AddrPortFrom(f.to.Addr(), f.from.Port())
	}
	ofWorld = rng.IntN(2) == 0
	if ofWorld && rng.IntN(3) == 0 && f.from.Addr().Is4() && f.kind != "echo" {
		f = natted(f, 40000+int(f.from.Port()))
	}
	if ofWorld {
		f = f.reversed()
	}
	return f, ofWorld
}

// randomPacket is a packet of a flow, of any size that the links take.
func randomPacket(rng *rand.Rand, f flow) []byte {
	ip := wire.IP{Source: f.from.Addr(), Destination: f.to.Addr(), HopLimit: rig.AnyOf[uint8](rng, 64, 64, 1, 0), Class: rig.AnyOf[uint8](rng, 0, 0, 3, 0x28), ID: 7}
	payload := make([]byte, rig.AnyOf(rng, 0, 1, 5, 100, 1400, 1440, 1450, 1460, 1470, 1480, 1490, 1500, 1510))
	switch f.kind {
	case "tcp":
		return ip.TCP(wire.TCP{From: f.from.Port(), To: f.to.Port(), Flags: rig.AnyOf[byte](rng, wire.SYN, wire.ACK, wire.ACK, wire.ACK|8, wire.FIN|wire.ACK, wire.RST)}, payload)
	case "udp":
		return ip.UDP(f.from.Port(), f.to.Port(), payload)
	}
	return f.packet()
}

// twins are an LB as it ships, and another, where all packets take the general way.
type twins struct {
	both [2]*bench
	rng  *rand.Rand
}

func newTwins(t *testing.T) *twins {
	w := &twins{rng: rig.Random(t)}
	w.both[0] = newBench(t, rig.Hits{})
	onOneCPU(t)
	w.both[1] = load(t, &bench{macs: w.both[0].macs, seen: rig.Hits{}}, config(), "virtual_time", "edge_unsteady")
	for _, b := range w.both {
		must(t, b.Objects().EdgeTurns.Put(uint32(service), uint32(0)))
	}
	return w
}

// change changes the clock, a node or the weights of both.
func (w *twins) change(t *testing.T) {
	t.Helper()
	now := w.both[0].now + rig.AnyOf(w.rng, 0, 0, 17*time.Millisecond, 300*time.Millisecond, 3*time.Second)
	server, mac := rig.AnyOf(w.rng, 1, 200), topo.MAC{}
	if w.rng.IntN(3) > 0 {
		mac = nodeMAC(server)
	}
	weights := []float64{float64(w.rng.IntN(2)), float64(w.rng.IntN(3)), 1}
	sweeps := w.rng.IntN(10) == 0
	for _, b := range w.both {
		b.at(t, now)
		must(t, b.SetNextHop(server, mac))
		must(t, b.SetWeights(service, weights))
		if sweeps {
			_, err := b.SweepTurn()
			must(t, err)
		}
	}
}

// send passes a frame through a link's program of both, which must do the same with it.
func (w *twins) send(t *testing.T, link string, frame []byte) rig.Outcome {
	t.Helper()
	var outs [2]rig.Outcome
	for i, b := range w.both {
		program := b.Objects().EdgeBack
		switch link {
		case "clients":
			program = b.Objects().EdgeClients
		case "world":
			program = b.Objects().EdgeWorld
		}
		outs[i] = b.run(t, program, slices.Clone(frame))
	}
	if !reflect.DeepEqual(outs[0], outs[1]) {
		t.Fatalf("%x from %s:\nby the shorter way action %d for %v, %x\nby the general    action %d for %v, %x", frame, link,
			outs[0].Action, outs[0].Reasons, outs[0].Frame, outs[1].Action, outs[1].Reasons, outs[1].Frame)
	}
	return outs[0]
}

// state is all that an LB keeps about flows, with its counts of an instance's packets.
func state(t *testing.T, b *bench) (map[uint64]objects.EdgeEdgeFlow, []edge.Count, []edge.Talker) {
	t.Helper()
	flows := map[uint64]objects.EdgeEdgeFlow{}
	var hash uint64
	var f objects.EdgeEdgeFlow
	for all := b.Objects().EdgeFlows.Iterate(); all.Next(&hash, &f); {
		flows[hash] = f
	}
	counts, err := b.Counts(service)
	must(t, err)
	talkers, err := b.Talkers(8)
	must(t, err)
	return flows, counts, talkers
}

// testBothWays: a packet fares by the shorter way of known flows as by the general one: the same frame,
// action and counters, entries, counts and samples, whatever happens to nodes meanwhile.
func testBothWays(t *testing.T, _ rig.Hits) {
	w := newTwins(t)
	steered := 0
	for range 2500 {
		if w.rng.IntN(30) == 0 {
			w.change(t)
		}
		f, ofWorld := randomFlow(w.rng)
		link := "clients"
		if ofWorld {
			link = "world"
		}
		packet := randomPacket(w.rng, f)
		out := w.send(t, link, rig.Damaged(w.rng, wire.Frame(w.both[0].macs[link], rig.RouterMAC, packet)))
		to, inside, err := wire.ParseTunnel(out.Frame)
		switch {
		case out.Action != redirect || err != nil:
		case slices.Contains(out.Reasons, "recover"):
			w.send(t, nodesLink, notMine(to).Around(inside))
		case slices.Equal(out.Reasons, []string{"steer"}):
			steered++
			if changed := natted(f, 40000+int(f.from.Port())); !ofWorld && f.from.Addr().Is4() && f.kind != "echo" && w.rng.IntN(4) == 0 {
				w.send(t, nodesLink, back(to).Around(changed.later()))
			}
		}
	}
	for _, b := range w.both {
		must(t, errors.Join(b.SetNextHop(1, nodeMAC(1)), b.SetNextHop(200, nodeMAC(200))))
	}
	for range 6 * topo.EdgeSampled { // so that there is one with the most
		w.send(t, "clients", wire.Frame(w.both[0].macs["clients"], rig.RouterMAC, long(from4("udp", 1000))))
	}
	flows, counts, talkers := state(t, w.both[0])
	flowsToo, countsToo, talkersToo := state(t, w.both[1])
	if !reflect.DeepEqual(flows, flowsToo) || !reflect.DeepEqual(counts, countsToo) || !reflect.DeepEqual(talkers, talkersToo) {
		t.Errorf("by the shorter way %v %v %v\nby the general    %v %v %v", flows, counts, talkers, flowsToo, countsToo, talkersToo)
	}
	if len(talkers) == 0 {
		t.Error("no flow is named")
	}
	if steered < 200 {
		t.Errorf("%d packets were steered, want 200", steered)
	}
}

// long is a datagram that takes the shorter way: a shorter one would do so in a padded frame alone.
func long(f flow) []byte {
	return wire.IP{Source: f.from.Addr(), Destination: f.to.Addr(), HopLimit: 50}.UDP(f.from.Port(), f.to.Port(), make([]byte, 100))
}

// testMovedAtOnce: a flow that was moved, or ended and begun again, stays where it is then, though its
// first node is back before the date ends: no CPU goes by its record of the flow before.
func testMovedAtOnce(t *testing.T, seen rig.Hits) {
	b := newBench(t, seen)
	onOneCPU(t)
	for _, ends := range []bool{false, true} {
		f, reasons := from4("udp", 5), []string{"flow_moved", "steer", "unowned"}
		if ends {
			f, reasons = from4("udp", 6), []string{"flow_ended", "unowned"}
		}
		sides := func(want int) {
			t.Helper()
			for range 2 {
				to := b.tunnelled(t, "client", b.fromClient(t, long(f)), long(f), "steer")
				from := b.tunnelled(t, "world", b.fromWorld(t, long(f.reversed())), long(f.reversed()), "steer")
				if to.Instance.Server != want || from.Instance.Server != want {
					t.Errorf("ends %t: from the client to node %d, from the world to %d, want %d", ends, to.Instance.Server, from.Instance.Server, want)
				}
			}
		}
		must(t, b.SetWeights(service, []float64{1, 0, 0}))
		to := b.tunnelled(t, "begun", b.fromClient(t, long(f)), long(f), "flow_begun", "steer")
		if ends {
			b.fromNode(t, back(to), long(natted(f, 40000))).Is(t, "change", redirect, nil, "update_learned")
		}
		sides(1)
		must(t, b.SetNextHop(1, topo.MAC{}))
		must(t, b.SetWeights(service, []float64{0, 0, 1}))
		asked := b.asks(t, "gone", b.fromClient(t, long(f)), long(f), 200)
		b.fromNode(t, notMine(asked), long(f)).Is(t, "answered", redirect, nil, reasons...)
		if ends {
			b.tunnelled(t, "begun again", b.fromClient(t, long(f)), long(f), "flow_begun", "steer")
		}
		must(t, b.SetNextHop(1, nodeMAC(1)))
		sides(200)
	}
}

// testOnePlace: some of many flows have one place for their records. Each word of their tuples tells
// them apart.
func testOnePlace(t *testing.T, seen rig.Hits) {
	rng := rig.Random(t)
	end := func(addr netip.Addr, first, last, port int) netip.AddrPort {
		a := addr.As16()
		for i := first; i < last; i++ {
			a[i] = byte(rng.IntN(256))
		}
		return netip.AddrPortFrom(netip.AddrFrom16(a), uint16(port))
	}
	for word := range 5 {
		b, begun := newBench(t, seen), map[flow]bool{}
		if word == 0 {
			onOneCPU(t)
		}
		for len(begun) < 400 {
			f := from6("udp", 1+word)
			switch word {
			case 0:
				f.from = end(client6, 6, 8, 1)
			case 1:
				f.from = end(client6, 8, 16, 2)
			case 2:
				f.to = end(remote6, 4, 8, 80)
			case 3:
				f.to = end(remote6, 8, 16, 80)
			case 4:
				f.from, f.to = end(client6, 0, 0, rng.IntN(1<<16)), end(remote6, 0, 0, rng.IntN(1<<16))
			}
			if begun[f] {
				continue
			}
			begun[f] = true
			for _, reasons := range [][]string{{"flow_begun", "steer"}, {"steer"}} {
				b.tunnelled(t, fmt.Sprintf("%v", f), b.fromClient(t, long(f)), long(f), reasons...)
			}
		}
	}
}
