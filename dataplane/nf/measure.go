package nf

import (
	"fmt"
	"net/netip"
	"runtime"
	"slices"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"proffer/topo"
	"proffer/weights"
	"proffer/wire"
)

// The packets of a measurement: so many flows with payloads of these lengths. A node's link has room
// for them.
const measuredFlows = 8

var measuredPayloads = []int{18, 470, 1370}

// pauses between two packets: the caches of a core that waits long are cold. Without a pause the core is
// busy; for less than shortest it waits awake, as sleep takes longer.
var pauses = []time.Duration{time.Millisecond, 250 * time.Microsecond, 50 * time.Microsecond, 20 * time.Microsecond, 0}

const shortest = 50 * time.Microsecond

// Bounds of a measurement. It goes through the pauses in rounds, as a disturbed moment lasts for longer than
// some packets.
const (
	rounds       = 9
	measuredMost = 1000                    // packets with a pause, in all rounds
	measuredFor  = 60 * time.Millisecond   // with a pause
	measuredAll  = 2400 * time.Millisecond // all chains together
)

// Measure is the cost of a packet of each service at a core, against the rate of packets: the chain
// runs on UDP packets of several lengths (EdgeBalance §3), with tables of its own, which are gone
// afterwards. Nothing is sent. The time is that which the kernel counts as a program's run time while it
// counts: that of the programs of a core, without the way there.
func Measure(cfg *topo.Datapath) (costs map[int]weights.Curve, err error) {
	own := *cfg
	own.Pin = ""
	own.Spread = false // BPF_PROG_RUN takes no program of a cpumap
	n, err := New(&own)
	if err != nil {
		return nil, err
	}
	defer n.Close()
	if err := n.SetNextHop(0, topo.MAC(n.link.HardwareAddr)); err != nil {
		return nil, err
	}
	prog := n.objs.Node
	if cfg.Spread {
		prog = n.objs.NodeCore
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	costs = map[int]weights.Curve{}
	for _, c := range cfg.Chains {
		if isInUserSpace(&c) { // the rest of its time is another thread's: the LBs' files state it
			continue
		}
		if v := virtualCost(&c); v > 0 {
			costs[c.Service] = weights.Fixed(float64(v.Nanoseconds()))
			continue
		}
		m := measurement{prog: prog, bound: min(measuredFor, measuredAll/time.Duration(len(pauses)*len(cfg.Chains)))}
		if m.frames, err = n.framesFor(prog, &c); err == nil {
			costs[c.Service], err = m.run()
		}
		if err != nil {
			return nil, fmt.Errorf("measure service %d: %w", c.Service, err)
		}
	}
	return costs, nil
}

// measurement runs a chain.
type measurement struct {
	prog   *ebpf.Program
	bound  time.Duration // of the packets with a pause
	frames [][][]byte    // by length and flow
}

func (m *measurement) run() (c weights.Curve, err error) {
	costs, each := make([][]float64, len(pauses)), make([][]float64, len(pauses)) // by pause and round
	for range rounds {
		for i, pause := range pauses {
			cost, elapsed, err := m.paced(pause)
			if err != nil {
				return c, err
			}
			costs[i], each[i] = append(costs[i], cost), append(each[i], elapsed)
		}
	}
	var all []weights.Measured
	for i, pause := range pauses {
		cost := calm(costs[i])
		rate := float64(time.Second) / calm(each[i])
		if pause == 0 {
			rate = float64(time.Second) / cost // the rest was ours
		}
		if len(all) == 0 || rate > all[len(all)-1].PerSecond {
			all = append(all, weights.Measured{PerSecond: rate, Nanoseconds: cost})
		}
	}
	c = weights.Through(all...)
	return c, c.Check()
}

// calm is the lower quartile of the rounds: a disturbed round takes longer.
func calm(rounds []float64) float64 {
	slices.Sort(rounds)
	return rounds[len(rounds)/4]
}

// paced runs a round's packets with a pause between two. It returns the mean time of a packet and the time
// from one to the next, in ns.
func (m *measurement) paced(pause time.Duration) (cost, each float64, err error) {
	took := make([][]float64, len(m.frames))
	begun, sent := time.Now(), 0
	for ; sent < len(m.frames) || sent < measuredMost/rounds && time.Since(begun) < m.bound/rounds; sent++ {
		if pause >= shortest {
			left := unix.NsecToTimespec(int64(pause))
			unix.Nanosleep(&left, nil) // a signal makes it shorter
		} else {
			for last := time.Now(); time.Since(last) < pause; {
			}
		}
		length := sent % len(m.frames)
		flows := m.frames[length]
		_, one, err := m.prog.Benchmark(flows[sent/len(m.frames)%len(flows)], 1, nil)
		if err != nil {
			return 0, 0, err
		}
		if one > 0 { // or a signal came
			took[length] = append(took[length], float64(one))
		}
	}
	for _, times := range took {
		cost += undisturbed(times) / float64(len(took))
	}
	return cost, float64(time.Since(begun)) / float64(sent), nil
}

// undisturbed is the mean without the longest tenth: those were interrupted.
func undisturbed(times []float64) (mean float64) {
	slices.Sort(times)
	times = times[:len(times)-len(times)/10]
	for _, t := range times {
		mean += t / float64(len(times))
	}
	return mean
}

// framesFor is packets that the chain lets through, by length and flow, after one of each has run. If it
// lets through none that is tried, they are dropped packets.
func (n *Node) framesFor(prog *ebpf.Program, c *topo.Chain) (frames [][][]byte, err error) {
	for _, p := range n.probes(c) {
		frames = nil
		passed := true
		for _, length := range measuredPayloads {
			var flows [][]byte
			for flow := range measuredFlows {
				frame := n.frame(c.Service, p, flow, length)
				action, err := prog.Run(&ebpf.RunOptions{Data: frame})
				if err != nil {
					return nil, fmt.Errorf("run its programs: %w", err)
				}
				const aborted, dropped = 0, 1
				passed = passed && action != aborted && action != dropped
				flows = append(flows, frame)
			}
			frames = append(frames, flows)
		}
		if passed {
			return frames, nil
		}
	}
	return frames, nil
}

// probe is the ends of packets that a chain may let through.
type probe struct {
	from, to netip.Addr
	port     uint16
	tcp      bool
}

// probes are from the client network to an address for measurements (RFC 2544, RFC 5180), or by the
// rules of a firewall in the chain.
func (n *Node) probes(c *topo.Chain) (all []probe) {
	const discard = 9
	rules := []topo.Rule{{}}
	for _, f := range c.Functions {
		if f, is := f.(topo.Firewall); is {
			rules = append(rules, f.Rules...)
		}
	}
	for _, r := range rules {
		for _, net := range n.cfg.Clients {
			p := probe{from: net.Addr(), to: netip.MustParseAddr("198.18.0.1"), port: max(r.Low, discard), tcp: r.Protocol == unix.IPPROTO_TCP}
			if net.Addr().Is6() {
				p.to = netip.MustParseAddr("2001:2::1")
			}
			if r.Source.IsValid() && !r.Source.Contains(p.from) {
				p.from = r.Source.Addr()
			}
			if r.Destination.IsValid() {
				p.to = r.Destination.Addr()
			}
			if net.Contains(p.from) && p.from.Is4() == p.to.Is4() {
				all = append(all, p)
			}
		}
	}
	return all
}

// frame is a packet of a service in its tunnel, to the first core.
func (n *Node) frame(service int, p probe, flow, payload int) []byte {
	const firstPort = 1024
	ip, port, data := wire.IP{Source: p.from, Destination: p.to, HopLimit: wire.DefaultHopLimit}, uint16(firstPort+flow), make([]byte, payload)
	inner := ip.UDP(port, p.port, data)
	if p.tcp {
		inner = ip.TCP(wire.TCP{From: port, To: p.port, Flags: wire.SYN}, data)
	}
	link := topo.MAC(n.link.HardwareAddr)
	return wire.Tunnel{
		LinkTo: link, LinkFrom: link, From: n.cfg.LBs[0], To: n.Address(0), Flow: uint64(flow),
		Instance: wire.Instance{Server: n.cfg.Server, Service: service},
	}.Around(inner)
}
