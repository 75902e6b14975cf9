// Package dataplane loads the eBPF programs of ../bpf, attaches them, and reads
// and writes their maps. It is the only importer of cilium/ebpf: to everyone
// else a data plane is an LB or an Agent with methods.
package dataplane

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
	"github.com/cilium/ebpf/link"
	"github.com/cilium/ebpf/ringbuf"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"proffer/topo"
)

const xdpType = ebpf.XDP

// Counter is one named reason and how often it was met.
type Counter struct {
	Name  string
	Value uint64
}

// plane is what the LB's and the agent's data planes share.
type plane struct {
	dev      *net.Interface
	xdp      link.Link
	mode     string
	names    []string
	counters *ebpf.Map
	nextHops *ebpf.Map
	hops     map[lbPrefix]lbNextHop // in nextHops
	have     topo.NextHops
	lost     *ringbuf.Reader
	sweep    *ebpf.Program
	flows    topo.FlowTable
	lines    uint32             // of the table of flows; the agent's sets
	kept     [sweepTurns]uint64 // entries, in the lines of each turn of the sweep
	turn     int                // the next one
	pins     pins
	unpinned string // why nothing is pinned; empty: it is
}

// self describes this node to its programs.
func self(n *topo.Node, dev *net.Interface) (lbNode, error) {
	if len(dev.HardwareAddr) != 6 {
		return lbNode{}, fmt.Errorf("%s has no Ethernet address: choose an Ethernet link", dev.Name)
	}
	return lbNode{
		LocatorBe: locatorBits(n.Locator),
		Mac:       [6]byte(dev.HardwareAddr),
		Mtu:       uint16(min(dev.MTU, 65535)),
	}, nil
}

// constants sets what every program takes as constants.
func constants(spec *ebpf.CollectionSpec, n *topo.Node, dev *net.Interface) error {
	me, err := self(n, dev)
	if err != nil {
		return err
	}
	redirectTo := uint32(0)
	if l, err := netlink.LinkByIndex(dev.Index); err == nil && l.Type() == "veth" {
		redirectTo = uint32(dev.Index)
	}
	blocks, err := blocksOf(n.Domain)
	if err != nil {
		return err
	}
	err = errors.Join(
		spec.Variables["self"].Set(me),
		spec.Variables["redirect_to"].Set(redirectTo))
	if v := spec.Variables["tick_ns"]; v != nil {
		err = errors.Join(err, v.Set(uint64(tick())))
	}
	if v := spec.Variables["domain"]; v != nil {
		err = errors.Join(err, v.Set(blocks), spec.Variables["blocks"].Set(uint32(len(n.Domain))))
	}
	if err != nil {
		return fmt.Errorf("set the programs' constants: %w", err)
	}
	return nil
}

// blocksOf are the SR domain's prefixes as the programs compare them: by the
// upper 64 bits of an address, where locators are.
func blocksOf(domain []netip.Prefix) (blocks [maxBlocks]lbBlock, err error) {
	if len(domain) > maxBlocks {
		return blocks, fmt.Errorf("the SR domain has %d blocks: at most %d", len(domain), maxBlocks)
	}
	for i, p := range domain {
		mask := ^uint64(0) << (64 - min(p.Bits(), 64))
		blocks[i].NetBe = locatorBits(p.Masked())
		blocks[i].MaskBe = binary.NativeEndian.Uint64(binary.BigEndian.AppendUint64(nil, mask))
	}
	return blocks, nil
}

const maxBlocks = 16 // MAX_BLOCKS of domain.h

// locatorBits is a locator as the programs compare it: 8 bytes as they stand in
// an address, read in this machine's order.
func locatorBits(p netip.Prefix) uint64 {
	a := p.Addr().As16()
	return binary.NativeEndian.Uint64(a[:8])
}

// portBits is a port as it stands in a packet, read in this machine's order.
func portBits(port uint16) uint16 {
	return binary.NativeEndian.Uint16(binary.BigEndian.AppendUint16(nil, port))
}

// counterNames returns the reasons a program counts, from the BTF of its enum.
func counterNames(spec *ebpf.CollectionSpec) ([]string, error) {
	var enum *btf.Enum
	if err := spec.Types.TypeByName("counter", &enum); err != nil {
		return nil, fmt.Errorf("find the names of the counters: %w", err)
	}
	names := make([]string, len(enum.Values)-1) // the last one is COUNTERS itself
	for i := range names {
		_, name, _ := strings.Cut(enum.Values[i].Name, "_")
		names[i] = strings.ToLower(name)
	}
	return names, nil
}

// attach puts the program on the link, in the driver when it can and else in
// the stack, and remembers which. Where an earlier daemon's program is still at
// work, this one takes its place between two packets.
func (p *plane) attach(prog *ebpf.Program) error {
	if p.pins.link != nil {
		if err := p.pins.link.Update(prog); err != nil {
			return fmt.Errorf("replace the program on %s: %w", p.dev.Name, err)
		}
		p.xdp, p.mode = p.pins.link, modeOf(p.dev.Index)
		return nil
	}
	var err error
	for _, m := range []struct {
		name string
		flag link.XDPAttachFlags
	}{{"native", link.XDPDriverMode}, {"generic", link.XDPGenericMode}} {
		p.xdp, err = link.AttachXDP(link.XDPOptions{Program: prog, Interface: p.dev.Index, Flags: m.flag})
		if err == nil {
			p.mode = m.name
			return p.pins.keepLink(p.xdp)
		}
		if errors.Is(err, unix.EBUSY) {
			return fmt.Errorf("%s already has an XDP program: stop what put it there, or `ip link set dev %s xdp off`", p.dev.Name, p.dev.Name)
		}
	}
	return fmt.Errorf("attach to %s: %w", p.dev.Name, err)
}

// modeOf says where XDP runs on a link that has a program.
func modeOf(dev int) string {
	l, err := netlink.LinkByIndex(dev)
	if err == nil && l.Attrs().Xdp != nil && l.Attrs().Xdp.AttachMode == nl.XDP_ATTACHED_SKB {
		return "generic"
	}
	return "native"
}

// Adopted tells whether an earlier daemon's data plane was taken over.
func (p *plane) Adopted() bool { return p.pins.link != nil }

// Unpinned says why nothing of this plane outlives its daemon; empty: it does.
func (p *plane) Unpinned() string { return p.unpinned }

// Mode says where XDP runs: "native" or "generic".
func (p *plane) Mode() string { return p.mode }

// Counters returns every reason the programs count, in their order, summed over CPUs.
func (p *plane) Counters() ([]Counter, error) {
	var perCPU [][]byte // of each a struct counts
	if err := p.counters.Lookup(uint32(0), &perCPU); err != nil {
		return nil, fmt.Errorf("read the counters: %w", err)
	}
	out := make([]Counter, len(p.names))
	for i, name := range p.names {
		out[i].Name = name
		for _, counts := range perCPU {
			out[i].Value += binary.NativeEndian.Uint64(counts[8*i:])
		}
	}
	return out, nil
}

// SetNextHops makes the programs' table equal to want.
func (p *plane) SetNextHops(want topo.NextHops) error {
	hops := make(map[lbPrefix]lbNextHop, len(want))
	for prefix, mac := range want {
		hop := lbNextHop{Mac: mac}
		if mac != (topo.MAC{}) {
			hop.Ready = 1
		}
		hops[prefixKey(prefix)] = hop
	}
	if p.hops == nil {
		p.hops = map[lbPrefix]lbNextHop{}
	}
	if err := update(p.nextHops, p.hops, hops); err != nil {
		return fmt.Errorf("write next hops: %w", err)
	}
	if _, err := prune(p.nextHops, p.hops, hops); err != nil {
		return fmt.Errorf("delete next hops: %w", err)
	}
	p.have = want
	return nil
}

func prefixKey(p netip.Prefix) lbPrefix {
	key := lbPrefix{Bits: uint32(p.Bits())}
	if p.Addr().Is4() {
		key.Bits += 96 // IPv4 addresses are mapped
	}
	key.Addr.In6U.U6Addr8 = p.Addr().As16()
	return key
}

// Unresolved waits for the next address that a packet had no next hop for. It
// fails once the plane is closed.
func (p *plane) Unresolved() (netip.Addr, error) {
	record, err := p.lost.Read()
	if err != nil {
		return netip.Addr{}, err
	}
	return netip.AddrFrom16([16]byte(record.RawSample)).Unmap(), nil
}

// tick is how often the kernel counts jiffies, by which the programs tell time.
func tick() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGetres(unix.CLOCK_MONOTONIC_COARSE, &ts); err != nil {
		panic(err) // the kernel always has this clock
	}
	return time.Duration(ts.Nano())
}

// monotonic is the clock that the agent's programs read.
func monotonic() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		panic(err) // the kernel always has this clock
	}
	return time.Duration(ts.Nano())
}

// close detaches first, so that no packet meets half a data plane. What was
// pinned goes with it: a daemon that ends in good order leaves nothing.
func (p *plane) close() error {
	var errs []error
	if p.xdp != nil {
		errs = append(errs, p.pins.remove(), p.xdp.Close())
	}
	if p.lost != nil {
		errs = append(errs, p.lost.Close())
	}
	return errors.Join(append(errs, p.pins.unlock())...)
}

// loadError keeps the verifier's reason and drops its megabytes.
func loadError(what string, err error) error {
	var ve *ebpf.VerifierError
	if errors.As(err, &ve) {
		return fmt.Errorf("this kernel's verifier refuses the %s program: %w", what, ve)
	}
	return fmt.Errorf("load the %s programs: %w", what, err)
}
