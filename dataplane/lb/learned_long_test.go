package lb_test

import (
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/cilium/ebpf"

	"proffer/dataplane/lb"
	"proffer/dataplane/objects"
	"proffer/proof/rig"
	"proffer/topo"
	"proffer/wire"
)

// script is the packets of a connection that reach the LB, by their flags; talk is data.
type script []byte

const talk = wire.ACK | wire.PSH

// scripts are connections as they should be, and as they should not: without a FIN, ended by a RST
// that is real or forged, without data, of last packets alone, and without a SYN.
var scripts = []script{
	{wire.SYN, talk, wire.FIN | wire.ACK, wire.ACK},
	{wire.SYN, wire.ACK, talk, talk, wire.FIN | wire.ACK},
	{wire.SYN, wire.SYN, talk, wire.FIN | wire.ACK, wire.FIN | wire.ACK, wire.ACK},
	{wire.SYN, talk},
	{wire.SYN, talk, wire.ACK, talk},
	{wire.SYN, talk, wire.RST},
	{wire.SYN, wire.RST},
	{wire.SYN, talk, wire.RST, talk, wire.FIN | wire.ACK},
	{wire.SYN, talk, wire.FIN | wire.ACK, talk, wire.RST, wire.ACK},
	{wire.SYN},
	{wire.FIN | wire.ACK},
	{wire.RST},
	{talk, talk, wire.FIN | wire.ACK},
}

// thread is the connections of a CPU. The CPUs share the clients, so that they use five-tuples again and
// again, also both at once.
type thread struct {
	rng    *rand.Rand
	prog   *ebpf.Program
	frames map[byte][]byte
	open   [64]struct {
		client uint32
		left   script
	}
}

// Half of the connections have one of few five-tuples.
const fewClients, manyClients = 10_000, 1 << 22

func newThread(seed, number uint64) *thread {
	c := &thread{rng: rand.New(rand.NewPCG(seed, number)), frames: map[byte][]byte{}}
	for _, s := range scripts {
		for _, flags := range s {
			p := client(0, flags)
			if flags == talk {
				p = payload(p)
			}
			c.frames[flags] = p.Frame()
		}
	}
	return c
}

// pass lets so many connections begin, and passes their packets as they mingle.
func (c *thread) pass(connections int) error {
	for connections > 0 {
		now := &c.open[c.rng.IntN(len(c.open))]
		if len(now.left) == 0 {
			connections--
			now.client, now.left = rig.AnyOf(c.rng, c.rng.Uint32N(fewClients), c.rng.Uint32N(manyClients)), scripts[c.rng.IntN(len(scripts))]
		}
		frame := c.frames[now.left[0]]
		now.left = now.left[1:]
		const ip = 14
		binary.BigEndian.PutUint16(frame[ip+22:], uint16(now.client>>16)) // the source's last 16 bits
		binary.BigEndian.PutUint16(frame[ip+40:], uint16(now.client))
		if _, err := c.prog.Run(&ebpf.RunOptions{Data: frame}); err != nil {
			return err
		}
	}
	return nil
}

// longRun is an LB that is started again and again.
type longRun struct {
	*testing.T
	*rig.LB
	cfg     *topo.LB
	threads [2]*thread
	met     map[string]uint64 // counters of the daemons before
}

// start is a daemon that finds an earlier one's flows.
func (r *longRun) start(now time.Duration) {
	r.Helper()
	l, err := lb.NewWith(r.cfg, rig.InVirtualTime)
	if err == nil {
		err = l.Attach()
	}
	if err != nil {
		r.Fatal(err)
	}
	r.LB = rig.LBAround(r, rig.Hits{}, l, r.cfg)
	hopsOf(r.T, r.LB)
	r.At(r, now)
	for _, c := range r.threads {
		c.prog = r.Objects().Lb
	}
}

// restart ends the daemon at the begin of a recount, and starts the next.
func (r *longRun) restart() {
	r.Helper()
	var tally objects.LBTally
	tallies, number, now := r.Objects().Tallies, uint32(1), r.Now
	if err := tallies.Lookup(number, &tally); err != nil {
		r.Fatal(err)
	}
	tally.Colour ^= 1
	if err := tallies.Put(number, tally); err != nil {
		r.Fatal(err)
	}
	r.count()
	r.Die(r.T)
	r.start(now)
	if wrong, err := r.Recount(); wrong != 0 || err != nil {
		r.Errorf("the next daemon finds %d counts wrong, %v", wrong, err)
	}
}

// step lets connections pass at two CPUs at once, then time; every third time the daemon counts
// again meanwhile.
func (r *longRun) step(rng *rand.Rand, number, connections int) {
	r.Helper()
	var errs [3]error
	done := make(chan bool)
	go func() {
		if number%3 == 0 {
			var wrong int
			if wrong, errs[2] = r.Recount(); wrong != 0 {
				r.Errorf("step %d: a recount finds %d wrong", number, wrong)
			}
		}
		close(done)
	}()
	both(func(i int) { errs[i] = r.threads[i].pass(connections / 2) })
	<-done
	if err := errors.Join(errs[:]...); err != nil {
		r.Fatal(err)
	}
	r.At(r, r.Now+time.Duration(rng.IntN(12_000))*time.Millisecond)
	spread := randomSpread(rng, len(r.cfg.Services[0].Servers), topo.LeastOfAll)
	spread.Silent = 20 * time.Second
	if err := r.Spread(&r.cfg.Services[0], spread); err != nil {
		r.Fatal(err)
	}
	if number%2 == 0 {
		if _, err := r.Sweep(); err != nil {
			r.Fatal(err)
		}
	}
}

// TestLearnedLong: after very many connections with lost FINs, RSTs, reused ports, silent flows, a
// table that is full and restarts of the daemon, the counts of each server are those of the table;
// after `idle` they are 0.
func TestLearnedLong(t *testing.T) {
	const seed, servers, each = 12, 40, 20_000
	connections := 500_000
	if n, err := strconv.Atoi(os.Getenv("PROFFER_FLOWS")); err == nil {
		connections = n
	}
	rig.Enter(t)
	r := &longRun{T: t, cfg: rig.LBConfig(learned(servers)), threads: [2]*thread{newThread(seed, 0), newThread(seed, 1)}, met: map[string]uint64{}}
	r.cfg.Flows = topo.FlowTable{Entries: 1 << 15, Idle: time.Minute, Linger: 10 * time.Second}
	r.cfg.Pin = filepath.Join(rig.BPFFS(t), "lb")
	r.start(rig.Start)
	rng := rand.New(rand.NewPCG(seed, 9))
	steps := max(1, connections/each)
	for number := range steps {
		r.step(rng, number, each)
		if number%(steps/4+1) == steps/4 {
			r.restart()
		}
		wantRecount(t, r.LB, 0)
		for _, word := range r.Table.Words(t) {
			r.met["silent"] += word >> 49 & 1
		}
		if t.Failed() {
			t.Fatalf("after %d connections (seed %d)", number*each, seed)
		}
	}
	r.count()
	for _, name := range []string{"flow_begun", "flow_established", "table_full", "evicted_embryonic", "evicted_brief", "evicted_over", "silent"} {
		t.Logf("%s %d", name, r.met[name])
		if r.met[name] == 0 {
			t.Errorf("no %s in %d connections", name, connections)
		}
	}
	r.At(t, r.Now+2*r.cfg.Flows.Idle)
	if _, err := r.Sweep(); err != nil {
		t.Fatal(err)
	}
	for i, s := range seats(t, r.LB, 0) {
		if s.Established+s.Embryonic != 0 {
			t.Errorf("server %d has %+v, and the table has no flow", i, s)
		}
	}
	wantRecount(t, r.LB, 0)
	if err := errors.Join(r.Detach(), r.Close()); err != nil {
		t.Fatal(err)
	}
}

// count adds this daemon's counters to those before.
func (r *longRun) count() {
	r.Helper()
	counters, err := r.Counters()
	if err != nil {
		r.Fatal(err)
	}
	for _, c := range counters {
		r.met[c.Name] += c.Value
	}
}
