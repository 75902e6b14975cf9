package races_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"runtime"
	"slices"
	"sync"
	"testing"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"proffer/dataplane/lb"
	"proffer/proof/rig"
	"proffer/topo"
	"proffer/wire"
)

// sentTo is what became of a client's packet: the server that it was sent to and
// of which generation; 0: every server was asked.
type sentTo struct {
	server     int // + 1
	generation uint16
}

// worker is one CPU's share of a test in which all CPUs use one table.
type worker struct {
	prog  *ebpf.Program
	rng   *rand.Rand
	own   map[uint32]sentTo // must be true, as no other worker touches these
	first uint32            // of these flows
	lost  int               // signals that other CPUs kept from having an effect
	full  int
	sent  int
}

const (
	ownFlows    = 150
	sharedFlows = 8
	mostLost    = 60 // of a thousand times as many
	crowdServes = 8
)

func (c *worker) run(frame []byte) ([]byte, error) {
	c.sent++
	o := ebpf.RunOptions{Data: frame, DataOut: make([]byte, len(frame)+256)}
	did, err := c.prog.Run(&o)
	if did == rig.XDPDrop {
		return nil, err
	}
	return o.DataOut, err
}

// say sends a signal about a flow of this CPU's own, which has an effect unless it is dropped; then
// its sender repeats it, as TCP does.
func (c *worker) say(frame []byte) error {
	for {
		out, err := c.run(frame)
		if err != nil || out != nil {
			return err
		}
		if c.lost++; c.lost > mostLost {
			return errors.New("signals are lost all the time")
		}
	}
}

// where sends data and returns its outcome.
func (c *worker) where(flow uint32) (sentTo, error) {
	out, err := c.run(rig.CrowdFlow(flow).Frame())
	if err != nil || len(out) < 54 {
		return sentTo{}, fmt.Errorf("%d bytes came back: %w", len(out), err)
	}
	dst := out[38:54] // of the outer header
	switch function := wire.Function(binary.BigEndian.Uint16(dst[8:])); function {
	case wire.RecoverStickiness:
		return sentTo{}, nil
	case wire.AckStickiness:
		for i := range crowdServes {
			if own := rig.ServerLocator(i).Addr().As16(); string(own[:8]) == string(dst[:8]) {
				return sentTo{i + 1, binary.BigEndian.Uint16(dst[10:])}, nil
			}
		}
		return sentTo{}, fmt.Errorf("steered to a stranger, %x", dst)
	default:
		return sentTo{}, fmt.Errorf("function %s", function)
	}
}

// has is the signal that a server has a flow, in an answer.
func has(flow uint32, s sentTo) []byte {
	p := rig.Outward(rig.HuntPort, wire.ACK)
	p.Dst = rig.CrowdClient(flow)
	return rig.SignalFrom(s.server-1, p, wire.CreateStickiness, s.generation)
}

// lacks is the signal that it does not have it.
func lacks(flow uint32, s sentTo) []byte {
	return rig.SignalFrom(s.server-1, rig.CrowdFlow(flow), wire.NotMine, s.generation)
}

// step does something to a flow that is this CPU's alone, and holds what becomes
// of its packets against that.
func (c *worker) step() error {
	flow := c.first + c.rng.Uint32N(ownFlows)
	was := c.own[flow]
	switch dice := c.rng.IntN(10); {
	case was.server == 0:
		was = sentTo{1 + c.rng.IntN(crowdServes), uint16(1 + c.rng.IntN(65535))}
		if err := c.say(has(flow, was)); err != nil {
			return err
		}
		is, err := c.where(flow)
		if err != nil {
			return err
		}
		if is.server == 0 {
			c.full++
			return nil
		}
		c.own[flow] = was
	case dice < 2: // forget it
		// Again if the entry is still there: a search may miss one that moves twice meanwhile.
		for is, said := was, 0; is == was && said < 4; said++ {
			err := c.say(lacks(flow, was))
			if err == nil {
				is, err = c.where(flow)
			}
			if err != nil {
				return err
			}
		}
		delete(c.own, flow)
	case dice < 4: // its server signals another generation
		was.generation = uint16(1 + c.rng.IntN(65535))
		if err := c.say(has(flow, was)); err != nil {
			return err
		}
		c.own[flow] = was
	}
	is, err := c.where(flow)
	if err == nil && is != c.own[flow] {
		err = fmt.Errorf("flow %d was steered to %+v, want %+v", flow, is, c.own[flow])
	}
	return err
}

// quarrel does something to a flow that all CPUs use: its server and generation
// must belong together.
func (c *worker) quarrel() error {
	flow := c.rng.Uint32N(sharedFlows)
	who := 1 + c.rng.IntN(crowdServes)
	s := sentTo{who, uint16(1000 + who)}
	var err error
	switch c.rng.IntN(3) {
	case 0:
		_, err = c.run(has(flow, s))
	case 1:
		_, err = c.run(lacks(flow, s))
	}
	if err != nil {
		return err
	}
	is, err := c.where(flow)
	if err == nil && is.server != 0 && int(is.generation) != 1000+is.server {
		err = fmt.Errorf("shared flow %d: halves of two, %+v", flow, is)
	}
	return err
}

// crowdedRig makes the moments long in which another CPU may come between.
func crowdedRig(t *testing.T, cfg *topo.LB) *rig.LB {
	t.Helper()
	l, err := lb.NewWith(cfg, func(spec *ebpf.CollectionSpec) error {
		return errors.Join(rig.InVirtualTime(spec), spec.Variables["stalls"].Set(true))
	})
	if err != nil {
		t.Fatalf("%+v", err)
	}
	t.Cleanup(func() { l.Close() })
	return rig.LBAround(t, rig.Hits{}, l, cfg)
}

// TestCrowdedTable: all CPUs create, steer, change and remove flows of a table
// that is too small for them, so that entries are moved all the time. What one CPU
// did to its own flows is there for its next packet, whatever the others do beside.
func TestCrowdedTable(t *testing.T) {
	const steps = 1000 * mostLost
	rig.Enter(t)
	cfg := rig.LBConfig(rig.Hunting(2, crowdServes, rig.Members))
	workers := max(runtime.NumCPU(), 2)
	cfg.Flows.Entries = workers * ownFlows * 70 / 100
	r := crowdedRig(t, cfg)
	everywhere(r, t)
	crowds := make([]*worker, workers)
	var wg sync.WaitGroup
	for i := range crowds {
		c := &worker{prog: r.Objects().Lb, rng: rand.New(rand.NewPCG(1, uint64(i))), own: map[uint32]sentTo{}, first: uint32(1000 * (i + 1))}
		crowds[i] = c
		wg.Add(1)
		go func() {
			defer wg.Done()
			runtime.LockOSThread() // and never back: the thread ends with its affinity
			var cpus unix.CPUSet
			cpus.Set(i % runtime.NumCPU())
			if err := unix.SchedSetaffinity(0, &cpus); err != nil {
				t.Error(err)
				return
			}
			for range steps {
				err := c.step()
				if err == nil {
					err = c.quarrel()
				}
				if err != nil {
					t.Errorf("CPU %d after %d packets: %v", i, c.sent, err)
					return
				}
			}
		}()
	}
	wg.Wait()
	kept, lost, full := 0, 0, 0
	for _, c := range crowds {
		kept, lost, full = kept+len(c.own), lost+c.lost, full+c.full
		for flow, want := range c.own {
			if e, known := r.Table.Get(t, rig.CrowdFlow(flow).Flow()).Flow(); !known || int(e.Server)+1 != want.server || e.Generation != want.generation {
				t.Errorf("at the end flow %d is %+v, want %+v", flow, e, want)
			}
		}
	}
	r.WellFormed(t)
	t.Logf("%d flows at the end, %d found no place, %d signals lost", kept, full, lost)
	if kept < workers*ownFlows/3 || full == 0 {
		t.Errorf("%d flows at the end, %d found no place", kept, full)
	}
}

// everywhere makes every client's address resolved.
func everywhere(r *rig.LB, t testing.TB) {
	t.Helper()
	hops := topo.NextHops{netip.MustParsePrefix("::/0"): rig.RouterMAC}
	for i := range crowdServes {
		hops[rig.ServerLocator(i)] = rig.HopMAC(i)
	}
	if err := r.SetNextHops(hops); err != nil {
		t.Fatal(err)
	}
}

// TestTableFill: filled to 80 % of its entries hardly a flow finds no place, nor
// while flows come and go; and nothing ever displaces an established one.
func TestTableFill(t *testing.T) {
	const entries, churn = 50_000, 60_000
	rig.Enter(t)
	cfg := rig.LBConfig(rig.Hunting(2, crowdServes, rig.Members))
	cfg.Flows.Entries = entries
	r := rig.LoadLB(t, rig.Hits{}, cfg)
	everywhere(r, t)
	c := &worker{prog: r.Objects().Lb, rng: rand.New(rand.NewPCG(2, 2))}
	is := sentTo{3, 77}
	refused := func() int { return int(r.Counts(t)[slices.Index(r.Names, "table_full")]) }
	flows := make([]uint32, entries)
	for i := range flows {
		flows[i] = uint32(i)
		if err := c.say(has(flows[i], is)); err != nil {
			t.Fatal(err)
		}
	}
	first := refused()
	if all, _ := r.Table.Count(t); first > entries/10_000 || all != entries-first || float64(entries)/float64(4*r.Lines) < 0.799 {
		t.Errorf("%d of %d flows found no place: %d entries in %d lines", first, entries, all, r.Lines)
	}
	for next := range uint32(churn) {
		at := &flows[c.rng.IntN(entries)]
		if err := c.say(lacks(*at, is)); err != nil {
			t.Fatal(err)
		}
		*at = entries + next
		if err := c.say(has(*at, is)); err != nil {
			t.Fatal(err)
		}
	}
	n := refused() - first
	t.Logf("no place: %d of %d while it filled to 80 %%, %d of %d later", first, entries, n, churn)
	if n > churn/200 {
		t.Errorf("%d of %d flows that came later found no place", n, churn)
	}
	for _, flow := range flows {
		if _, known := r.Table.Get(t, rig.CrowdFlow(flow).Flow()).Flow(); !known {
			first--
		}
	}
	if first+n < 0 {
		t.Errorf("%d established flows are gone", -first-n)
	}
	r.WellFormed(t)
}
