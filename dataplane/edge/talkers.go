package edge

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"proffer/dataplane/internal/plane"
	"proffer/dataplane/objects"
	"proffer/topo"
	"proffer/wire"
)

const (
	longestWindow = 10 * time.Second // samples before it are of no flow of now
	leastSamples  = 4                // of a flow that has a name
)

// Talker is a flow that has many packets.
type Talker struct {
	Client, World  netip.AddrPort // an echo has its identifier at both
	Protocol       uint8
	Instance       wire.Instance
	Packets, Bytes float64 // a second, both directions
	Share          float64 // of all packets
	samples        int
}

// Talkers returns the flows with the most packets of late, at most n, by a sample of one packet in 64.
// The tuples before and after a change are the same flow.
func (l *LB) Talkers(n int) ([]Talker, error) {
	now, err := l.clock()
	if err != nil {
		return nil, err
	}
	var perCPU []objects.EdgeEdgeSamplesOfCpu
	if err := l.objs.EdgeSamples.Lookup(uint32(0), &perCPU); err != nil {
		return nil, fmt.Errorf("read the samples of flows: %w", err)
	}
	flows, total := map[uint64]*Talker{}, 0.0
	for i := range perCPU {
		window := min(longestWindow, now-l.began)
		if of := &perCPU[i]; of.Next >= topo.EdgeSamples { // the oldest samples are gone
			window = min(window, now-time.Duration(of.Of[of.Next%topo.EdgeSamples].AtNs))
		}
		rate := topo.EdgeSampled / max(window, plane.Tick()).Seconds()
		for k := range min(perCPU[i].Next, topo.EdgeSamples) {
			s := &perCPU[i].Of[k]
			if now-time.Duration(s.AtNs) > window {
				continue
			}
			total += rate
			l.flowOf(flows, s).add(s, rate)
		}
	}
	var all []Talker
	for _, f := range flows {
		if f.Share = f.Packets / total; f.samples >= leastSamples {
			all = append(all, *f)
		}
	}
	slices.SortFunc(all, func(a, b Talker) int {
		return cmp.Or(cmp.Compare(b.Packets, a.Packets), a.Client.Compare(b.Client), a.World.Compare(b.World))
	})
	return all[:min(n, len(all))], nil
}

// flowOf finds the flow of a sample. If the world sent the packet, the partner of its entry has the end that
// the client has before the functions' change.
func (l *LB) flowOf(flows map[uint64]*Talker, s *objects.EdgeEdgeSample) *Talker {
	if t := flows[s.Hash]; t != nil {
		return t
	}
	var f, before objects.EdgeEdgeFlow
	known := l.objs.EdgeFlows.Lookup(s.Hash, &f) == nil && f.Partner != 0
	if t := flows[f.Partner]; known && t != nil {
		return t
	}
	t := &Talker{
		Client: endOf(s.T.Client.In6U.U6Addr8, s.T.ClientPortBe), World: endOf(s.T.Vip.In6U.U6Addr8, s.T.VipPortBe),
		Protocol: s.T.Protocol, Instance: wire.ParseInstance(s.Instance),
	}
	flows[s.Hash] = t
	if s.Bytes&topo.EdgeOfClients != 0 || !known || l.objs.EdgeFlows.Lookup(f.Partner, &before) != nil {
		return t
	}
	t.Client = endOf(before.End.In6U.U6Addr8, before.EndPortBe)
	if t.Protocol != wire.ProtoTCP && t.Protocol != wire.ProtoUDP { // an echo
		t.World = netip.AddrPortFrom(t.World.Addr(), t.Client.Port())
	}
	return t
}

func endOf(addr [16]byte, portBE uint16) netip.AddrPort {
	port := binary.BigEndian.Uint16(binary.NativeEndian.AppendUint16(nil, portBE))
	return netip.AddrPortFrom(netip.AddrFrom16(addr).Unmap(), port)
}

// add counts a sample.
func (t *Talker) add(s *objects.EdgeEdgeSample, rate float64) {
	t.samples++
	t.Packets += rate
	t.Bytes += rate * float64(s.Bytes&^topo.EdgeOfClients)
}

// clock is the programs' time: the kernel's ticks.
func (l *LB) clock() (time.Duration, error) {
	var nothing objects.EdgeEdgeExpiry
	if err := plane.RunRecord(l.objs.SweepEdge, &nothing); err != nil {
		return 0, fmt.Errorf("read the programs' clock: %w", err)
	}
	return time.Duration(nothing.Now), nil
}
