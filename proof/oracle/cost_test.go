package oracle_test

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/cilium/ebpf"

	"proffer/proof/machine"
	"proffer/proof/rig"
	"proffer/topo"
	"proffer/wire"
)

// mostCost is how many hundredths of the dearest legitimate frame any frame may cost.
const mostCost = 320

// TestCost: no frame, however made, costs more than mostCost hundredths of the dearest frame that a
// client or a node of the farm sends; at a full table, than that at a table with room. The cost is the number of instructions of the compiled
// program, run by proof/machine, with a price for each helper; every run is held to the
// kernel's verdict and frame.
func TestCost(t *testing.T) {
	keys := []topo.SignalKey{rig.OldKeys, rig.NewKeys}
	for name, make := range map[string]func(*testing.T) *meter{
		"lb":           func(t *testing.T) *meter { return lbMeter(t, newLBJudge(t, nil)) },
		"full lb":      fullLBMeter,
		"signed lb":    func(t *testing.T) *meter { return lbMeter(t, newSignedLBJudge(t)) },
		"agent":        func(t *testing.T) *meter { return agentMeter(t, nil, socketRow{Listening: 1}) },
		"signed agent": func(t *testing.T) *meter { return agentMeter(t, keys, socketRow{Listening: 1}) },
		"agent with connections": func(t *testing.T) *meter {
			return agentMeter(t, nil, socketRow{State: tcpEstablished, RcvIsn: rig.ClientISN, Number: rig.ClientISN + 1, Listening: 1, Window: 65535})
		},
	} {
		t.Run(name, func(t *testing.T) { make(t).measure(t) })
	}
}

const tcpEstablished = 1 // BPF_TCP_ESTABLISHED

// socketRow is struct socket of bpf/agent/socket.h.
type socketRow struct{ State, RcvIsn, Number, Listening, Full, Queue, Window uint32 }

// meter runs frames in the machine and in the kernel.
type meter struct {
	*rig.Rig
	machine *machine.Kernel
	program string
	seeds   [][]byte
	roomy   dear // the dearest legitimate frame at a table with room, if this one is full
}

// dear is the frame of the highest cost so far.
type dear struct {
	cost  int
	frame []byte
}

func newMeter(t *testing.T, r *rig.Rig, seeds [][]byte, loaded map[string]*ebpf.Program, program string) *meter {
	t.Helper()
	k, err := machine.NewKernel(r.Spec, loaded)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(k.Close)
	return &meter{Rig: r, machine: k, program: program, seeds: seeds}
}

func lbMeter(t *testing.T, j *judge) *meter {
	return newMeter(t, j.Rig, j.seeds, j.programs, "lb")
}

// fullLBMeter is an LB with a full table, of which no entry gives way.
func fullLBMeter(t *testing.T) *meter {
	roomy := lbMeter(t, newLBJudge(t, nil))
	j := newLBJudge(t, nil)
	j.lines.Fill(t, j.Now)
	m := lbMeter(t, j)
	m.roomy = roomy.dearest(t)
	return m
}

// agentMeter is an agent of which every flow has that row in the kernel's socket table.
func agentMeter(t *testing.T, keys []topo.SignalKey, row socketRow) *meter {
	t.Helper()
	rig.Enter(t)
	eager := rig.Offering(rig.HuntPort, func(o *topo.Offering) { o.Acceptance = topo.Always })
	busy := rig.Offering(81, func(o *topo.Offering) { o.Threshold = 0 })
	cfg := rig.AgentConfig(2*rememberAtMost, eager, busy, rig.Offering(insertedPort, rig.Inserts), rig.Offering(82))
	r := rig.LoadAgent(t, rig.Hits{}, cfg, func(spec *ebpf.CollectionSpec) error {
		if err := spec.Variables["virtual_sockets"].Set(true); err != nil {
			return err
		}
		return rig.InVirtualTime(spec)
	})
	if err := rig.SectionOf(t, r.Prog, ".data.sockets").Put(uint32(0), row); err != nil {
		t.Fatal(err)
	}
	if err := r.SetNextHops(judgedHops()); err != nil {
		t.Fatal(err)
	}
	seeds := agentSeeds()
	if keys != nil {
		if err := r.SetKeys(keys); err != nil {
			t.Fatal(err)
		}
		seeds = append(seeds, signedRequests(keys[0])...)
	}
	return newMeter(t, &r.Rig, seeds, map[string]*ebpf.Program{"agent_in": r.Objects().AgentIn, "agent_return": r.Objects().AgentReturn}, "agent_in")
}

// signedRequests have a good tag over one segment and over many.
func signedRequests(key topo.SignalKey) (seeds [][]byte) {
	for n := range 11 {
		p := rig.Inward(rig.HuntPort, wire.SYN)
		offer := slices.Repeat([]wire.Function{wire.ConnectAvail}, n)
		seeds = append(seeds, rig.To(p, wire.Generation(p.Seq), append(offer, wire.ConnectForce)...).Signed(key).Frame())
		p.Flags = wire.ACK
		question := slices.Repeat([]wire.Function{wire.RecoverStickiness}, n+1)
		seeds = append(seeds, rig.To(p, 0, question...).Signed(key).Frame())
	}
	return seeds
}

// dearest is the dearest of the seeds, as they come and come again.
func (m *meter) dearest(t *testing.T) (d dear) {
	t.Helper()
	for range 3 {
		for _, frame := range m.seeds {
			m.run(t, frame, &d)
		}
	}
	return d
}

// measure compares the seeds to all that mutations make of them.
func (m *meter) measure(t *testing.T) {
	var worst dear
	dearest := m.dearest(t)
	if m.roomy.cost > 0 {
		dearest, worst = m.roomy, dearest
	}
	mutator := newMutator(t, slices.Concat(m.seeds, stuffed(m.seeds)))
	frames := 60_000
	mutator.rng.Shuffle(len(mutator.plan), func(i, k int) {
		mutator.plan[i], mutator.plan[k] = mutator.plan[k], mutator.plan[i]
	})
	mutator.plan = mutator.plan[:min(len(mutator.plan), frames/2)]
	for _, frame := range stuffed(m.seeds) {
		m.run(t, frame, &worst)
	}
	for range frames {
		m.run(t, mutator.next(), &worst)
	}
	t.Logf("dearest legitimate frame: %d instructions, %d bytes, %.120x", dearest.cost, len(dearest.frame), dearest.frame)
	t.Logf("worst of %d others: %d instructions (%.2f times), %d bytes, %.120x", frames, worst.cost,
		float64(worst.cost)/float64(dearest.cost), len(worst.frame), worst.frame)
	if dearest.cost == 0 || 100*worst.cost > mostCost*dearest.cost {
		t.Errorf("the worst frame costs %d instructions, the dearest legitimate one %d; want at most %d %% of that\nframe %x",
			worst.cost, dearest.cost, mostCost, worst.frame)
	}
}

// run passes one frame through the machine and through the kernel, which must agree.
func (m *meter) run(t *testing.T, frame []byte, most *dear) {
	t.Helper()
	action, left := m.machine.Run(m.program, frame)
	got := m.Run(t, frame)
	if action != got.Action || !slices.Equal(left, got.Frame) {
		t.Fatalf("frame %x\nthe kernel's action is %d, %x\nthe machine's    %d, %x", frame, got.Action, got.Frame, action, left)
	}
	if m.machine.Spent > most.cost {
		*most = dear{m.machine.Spent, frame}
	}
}

// stuffed makes of seeds the frames with as much to read as a frame has room for.
func stuffed(seeds [][]byte) (all [][]byte) {
	segment := rig.SID(rig.ServerLocator(2), wire.ConnectForce, 1)
	for i, s := range seeds {
		if len(s) < rig.AtUpper || s[12] != 0x86 {
			continue
		}
		for _, c := range rig.WithTLVs(segment) {
			all = append(all, rig.WithSRH(s, c.Header))
		}
		for _, n := range []int{2, 15, 16, 17, 64, 127} {
			list := slices.Repeat([]netip.Addr{segment}, n)
			for _, left := range []int{0, n - 1, n} {
				all = append(all, rig.WithSRH(s, wire.SRH(s[rig.AtNext], left, list...)), rig.WithSRH(s, wire.SRH(wire.ProtoIPv6, left, list...)))
			}
		}
		chain := s
		for n := range 40 {
			chain = rig.WithExtension(chain, []byte{0, 60, 43, 51, 135}[(i+n)%5], n%8)
			all = append(all, chain)
		}
	}
	return all
}
