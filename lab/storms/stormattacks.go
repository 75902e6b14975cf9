package storms

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"strings"
	"time"

	"proffer/lab/farmrun"
	"proffer/lab/testbed"
	"proffer/lab/traffic/raw"
	"proffer/wire"
)

// attack is a stream of frames that goes on all the time.
type attack struct {
	name    string
	counted []string // by role and counter: each of them must move
	rate    float64
	forge   raw.Forge
	flood   *raw.Flood // instead of forge
	sent    raw.Sent
}

func (a *attack) run(ctx context.Context, d time.Duration) (err error) {
	var sent raw.Sent
	if a.flood != nil {
		a.flood.Rate, a.flood.For = a.rate, d
		sent, err = a.flood.Run(ctx)
	} else {
		a.forge.Rate, a.forge.For = a.rate, d
		sent, err = a.forge.Run(ctx)
	}
	a.sent.Frames += sent.Frames
	return err
}

// insistFor is how long an abuse that had no effect in the storm's time goes on, at most.
const insistFor = 2 * time.Minute

// insist goes on with an attack or trouble until its counter has moved: a
// slow machine reaches in minutes as much as a fast one in seconds.
func (w *weather) insist(ctx context.Context, attacks []*attack, lanes [][]*trouble, show func(farmrun.Step)) error {
	again := func(name, counter string, abuse func() error) error {
		for until := time.Now().Add(insistFor); time.Now().Before(until); {
			if n, err := w.counted(ctx, counter); err != nil || n > 0 {
				return err
			}
			show(farmrun.Step{Doing: name + " goes on until " + counter + " moves", Done: w.experiment.acts(), Total: w.experiment.acts()})
			if err := abuse(); err != nil {
				return err
			}
		}
		return nil
	}
	for _, a := range attacks {
		for _, counter := range a.counted {
			if err := again(a.name, counter, func() error { return a.run(ctx, time.Second) }); err != nil {
				return err
			}
		}
	}
	for _, t := range slices.Concat(lanes...) {
		if t.counted == "" {
			continue
		}
		err := again(t.name, t.counted, func() error {
			t.times++
			return t.make(ctx, t.nodes[0])
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// counted is the count of all daemons until now, with those that have ended.
func (w *weather) counted(ctx context.Context, counter string) (uint64, error) {
	role, name, _ := strings.Cut(counter, ".")
	nodes := w.bed.LBs
	if role == "agent" {
		nodes = w.bed.Servers
	}
	n, err := w.farm.Count(ctx, nodes, name)
	return n + w.books.totals[counter], err
}

// attacks come from the client's network, through an open edge, and one from a neighbour on
// the link of an LB.
func (w *weather) attacks() ([]*attack, error) {
	e, bed := w.experiment, w.bed
	ethernet, err := raw.Ethernet(bed.Client.Enter, "eth0", bed.VIP)
	if err != nil {
		return nil, err
	}
	broadcast := append([]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}, ethernet[6:]...)
	live := farmrun.FromPorts(bed.ClientAddrs[0], e.Flows)
	web := netip.AddrPortFrom(bed.VIP, testbed.Port)
	outside := raw.Forge{Interface: "eth0", Enter: bed.Client.Enter}
	beside := raw.Forge{Interface: bed.LBs[0].Link, Enter: bed.Router.Enter}
	signals := &forger{
		rng: rand.New(rand.NewPCG(e.Seed, 2)), ethernet: ethernet, vip: web,
		outside: bed.ClientAddrs[0], lbs: bed.LBs, servers: bed.Servers, live: live,
	}
	stranger := func(seed uint64, ethernet []byte) *strangers {
		return &strangers{rng: rand.New(rand.NewPCG(e.Seed, seed)), ethernet: ethernet, vip: bed.VIP}
	}
	forged := func(f raw.Forge, frame func(int) []byte) raw.Forge {
		f.Frame = frame
		return f
	}
	return []*attack{
		{name: "SYNs of no client", rate: 500, counted: []string{"lb.offer"}, flood: &raw.Flood{
			Interface: "eth0", To: web, Clients: testbed.ClientNet(), Seed: e.Seed, Enter: bed.Client.Enter}},
		{name: "flows of two datagrams", rate: 2200, counted: []string{"lb.evicted_brief"}, forge: forged(outside, stranger(3, ethernet).datagramTwice)},
		{name: "stray ACKs", rate: 500, counted: []string{"lb.recover"}, forge: forged(outside, stranger(4, ethernet).ack)},
		{name: "datagrams to a port without a service", rate: 50, counted: []string{"lb.refuse_port"}, forge: forged(outside, stranger(5, ethernet).unserved)},
		{name: "frames for another host", rate: 50, counted: []string{"lb.pass_other_host"}, forge: forged(beside, stranger(6, broadcast).ack)},
		{name: "forged signals", rate: 200, counted: []string{"lb.drop_bad_tag", "agent.drop_bad_tag", "lb.drop_outside", "agent.drop_outside"}, forge: forged(outside, signals.signal)},
	}, nil
}

// burst sends stray ACKs to one LB as fast as they go: more than it asks servers about.
func (w *weather) burst(ctx context.Context, n *testbed.Node) error {
	const frames = 20_000
	to, err := n.MAC()
	if err != nil {
		return err
	}
	from := append(w.mac(), 0x86, 0xdd)
	s := &strangers{rng: rand.New(rand.NewPCG(w.experiment.Seed, 7)), ethernet: append(to, from...), vip: w.bed.VIP}
	_, err = raw.Forge{Interface: n.Link, Frame: s.ack, Frames: frames, Enter: w.bed.Router.Enter}.Run(ctx)
	return err
}

// strangers are clients that do not exist.
type strangers struct {
	rng      *rand.Rand
	ethernet []byte
	vip      netip.Addr
	last     []byte
}

func (s *strangers) client() netip.AddrPort {
	a := testbed.ClientNet().Addr().As16()
	binary.BigEndian.PutUint64(a[8:], s.rng.Uint64()|1<<63) // no address that the bed gave
	return netip.AddrPortFrom(netip.AddrFrom16(a), uint16(farmrun.FirstPort+s.rng.IntN(farmrun.Ports)))
}

func (s *strangers) frame(packet []byte) []byte {
	s.last = append(append(s.last[:0], s.ethernet...), packet...)
	return s.last
}

func (s *strangers) ip(from netip.Addr) wire.IP {
	return wire.IP{Source: from, Destination: s.vip, HopLimit: wire.DefaultHopLimit}
}

func (s *strangers) datagram(port uint16) []byte {
	from := s.client()
	return s.frame(s.ip(from.Addr()).UDP(from.Port(), port, make([]byte, 16)))
}

// datagramTwice sends every datagram twice: the second one makes a flow of it.
func (s *strangers) datagramTwice(i int) []byte {
	if i%2 == 1 {
		return s.last
	}
	return s.datagram(dnsPort)
}

func (s *strangers) unserved(int) []byte { return s.datagram(9999) }

func (s *strangers) ack(int) []byte {
	from := s.client()
	t := wire.TCP{From: from.Port(), To: testbed.Port, Seq: s.rng.Uint32(), Ack: s.rng.Uint32(), Flags: wire.ACK}
	return s.frame(s.ip(from.Addr()).TCP(t, nil))
}

// sink takes datagrams and answers each, so that its flow looks alive.
type sink struct{ *net.UDPConn }

type sinks []sink

func serveSinks(nodes []*testbed.Node, at netip.AddrPort) (all sinks, err error) {
	for _, n := range nodes {
		err := n.Do(func() error {
			conn, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(at))
			if err == nil {
				all = append(all, sink{conn})
				go all[len(all)-1].serve() // ends with Close
			}
			return err
		})
		if err != nil {
			return nil, errors.Join(fmt.Errorf("listen on %s: %w", n.Name, err), all.Close())
		}
	}
	return all, nil
}

func (s sink) serve() {
	buffer := make([]byte, 2048)
	for {
		n, from, err := s.ReadFromUDPAddrPort(buffer)
		if err != nil {
			return
		}
		_, _ = s.WriteToUDPAddrPort(buffer[:n], from) // the client does not exist
	}
}

func (all sinks) Close() error {
	var errs []error
	for _, s := range all {
		errs = append(errs, s.UDPConn.Close())
	}
	return errors.Join(errs...)
}
