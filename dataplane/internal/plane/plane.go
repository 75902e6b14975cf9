// Package plane is the part that the LB's and the agent's data planes share: the constants
// of the programs, XDP on a link, pins, next hops, keys, counters and sweeps.
package plane

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"sync/atomic"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
	"github.com/cilium/ebpf/link"
	"github.com/cilium/ebpf/ringbuf"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"proffer/dataplane"
	"proffer/dataplane/internal/hook"
	"proffer/dataplane/objects"
	"proffer/topo"
)

// Plane is the common part of the LB's and the agent's data planes.
type Plane struct {
	Dev         atomic.Pointer[net.Interface] // as it was last read
	Self        *ebpf.Variable                // this node, as the programs read it
	locator     uint64
	XDP         link.Link
	TC          *hook.TC // a program beside it, once it is attached
	mode        string
	whyGeneric  string // why XDP does not run in the driver; empty: it does
	Names       []string
	Counts      *ebpf.Map
	SuspectMap  *ebpf.Map // of senders without a valid tag
	Served      *Served   // other link addresses
	HopMap      *ebpf.Map
	DefaultHops *ebpf.Map
	defaults    *defaults
	hops        map[objects.LBPrefix]objects.LBNextHop // in nextHops
	CurrentHops topo.NextHops
	Lost        *ringbuf.Reader
	Sweeper     *ebpf.Program
	FlowTable   topo.FlowTable
	Lines       uint32             // of the table of flows; the agent's sets
	kept        [SweepTurns]uint64 // entries, in the lines of each turn of the sweep
	turn        int                // the next
	Pins        Pins
	WhyUnpinned string // why nothing is pinned; empty: it is
}

// Constants sets the constants of every program, and the state of the link as it is now.
func (p *Plane) Constants(spec *ebpf.CollectionSpec, n *topo.Node) error {
	dev := p.Dev.Load()
	p.locator = objects.LocatorBits(n.Locator)
	me, err := self(p.locator, dev)
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
		spec.Variables["redirect_to"].Set(redirectTo),
		spec.Variables["limit_secret"].Set(Secret()),
		spec.Variables["idle_ns"].Set(uint64(p.FlowTable.Idle)),
		spec.Variables["tcp_idle_ns"].Set(uint64(p.FlowTable.IdleTCP())),
		spec.Variables["linger_ns"].Set(uint64(p.FlowTable.Linger)))
	if v := spec.Variables["tick_ns"]; v != nil {
		err = errors.Join(err, v.Set(uint64(Tick())))
	}
	if v := spec.Variables["domain"]; v != nil {
		err = errors.Join(err, v.Set(blocks), spec.Variables["blocks"].Set(uint32(len(n.Domain))))
	}
	if err != nil {
		return fmt.Errorf("set the programs' constants: %w", err)
	}
	return nil
}

// Secret is a number that no sender of packets knows.
func Secret() uint64 {
	var b [8]byte
	rand.Read(b[:])
	return binary.NativeEndian.Uint64(b[:])
}

// blocksOf are the SR domain's prefixes as the programs compare them: by the
// upper 64 bits of an address, where locators are.
func blocksOf(domain []netip.Prefix) (blocks [MaxBlocks]objects.LBBlock, err error) {
	if len(domain) > MaxBlocks {
		return blocks, fmt.Errorf("the SR domain has %d blocks: at most %d", len(domain), MaxBlocks)
	}
	for i, p := range domain {
		mask := ^uint64(0) << (64 - min(p.Bits(), 64))
		blocks[i].NetBe = objects.LocatorBits(p.Masked())
		blocks[i].MaskBe = binary.NativeEndian.Uint64(binary.BigEndian.AppendUint64(nil, mask))
	}
	return blocks, nil
}

const MaxBlocks = 16 // MAX_BLOCKS of domain.h

// CounterNames returns the reasons a program counts, from the BTF of its enum.
func CounterNames(spec *ebpf.CollectionSpec) ([]string, error) {
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

// AttachXDP puts the program on the link, in the driver when it can and else in the
// stack, and remembers which. If an earlier daemon's program is still attached, this
// program replaces it between two packets.
func (p *Plane) AttachXDP(prog *ebpf.Program) error {
	dev := p.Dev.Load()
	if p.Pins.link != nil {
		if err := p.Pins.link.Update(prog); err != nil {
			return fmt.Errorf("replace the program on %s: %w", dev.Name, err)
		}
		p.XDP, p.mode = p.Pins.link, modeOf(dev.Index)
		if p.mode == generic {
			p.whyGeneric = putEarlier
		}
		return nil
	}
	var err error
	if p.XDP, p.whyGeneric, err = attachXDP(prog, dev); err != nil {
		return err
	}
	if p.mode = native; p.whyGeneric != "" {
		p.mode = generic
	}
	return p.Pins.keepLink(p.XDP)
}

// attachXDP puts a program on a link, in the driver when it can and else in the stack: then whyGeneric is the
// reason.
func attachXDP(prog *ebpf.Program, dev *net.Interface) (on link.Link, whyGeneric string, err error) {
	for _, mode := range []link.XDPAttachFlags{link.XDPDriverMode, link.XDPGenericMode} {
		on, err = link.AttachXDP(link.XDPOptions{Program: prog, Interface: dev.Index, Flags: mode})
		if err == nil {
			return on, whyGeneric, nil
		}
		if errors.Is(err, unix.EBUSY) || errors.Is(err, unix.EEXIST) {
			if other := hook.Occupied(dev); other != nil {
				return nil, "", other
			}
		}
		if mode == link.XDPDriverMode {
			whyGeneric = hook.WhyGeneric(dev.Index, prog, err)
		}
	}
	return nil, "", fmt.Errorf("attach to %s: %w", dev.Name, err)
}

// modeOf is where XDP runs on a link that has a program.
func modeOf(dev int) string {
	l, err := netlink.LinkByIndex(dev)
	if err == nil && l.Attrs().Xdp != nil && l.Attrs().Xdp.AttachMode == nl.XDP_ATTACHED_SKB {
		return generic
	}
	return native
}

const (
	generic    = "generic" // mode: XDP runs in the stack
	native     = "native"  // … in the driver
	putEarlier = "an earlier daemon put it there"
)

// Advice is the facts about the link that cost speed or packets, each with its remedy if there
// is one.
func (p *Plane) Advice() []string {
	dev := p.Dev.Load()
	return append(adviceOn(dev, p.whyGeneric, triedAgain(p.WhyUnpinned)), p.Served.Advice(dev)...)
}

// triedAgain is when the driver is tried again.
func triedAgain(unpinned string) string {
	if unpinned != "" {
		return "a restart tries"
	}
	return "`proffer detach` and a start try"
}

// adviceOn is about a link. A reason is of the start: the kernel does not say whether it still holds.
func adviceOn(dev *net.Interface, whyGeneric, again string) (all []string) {
	if whyGeneric != "" {
		all = append(all, fmt.Sprintf("XDP runs in the stack and not in the driver of %s, much slower: %s; this was so at the start, and %s the driver again", dev.Name, whyGeneric, again))
	}
	vlans, err := hook.StrippedVLANs(dev)
	if err != nil {
		vlans = err.Error()
	}
	if vlans != "" {
		all = append(all, vlans)
	}
	return all
}

// Link is the link as it is now.
func (p *Plane) Link(string) *net.Interface { return p.Dev.Load() }

// Reach is SetNextHops.
func (p *Plane) Reach(_ string, want topo.NextHops) error { return p.SetNextHops(want) }

// Adopted reports whether an earlier daemon's data plane was taken over.
func (p *Plane) Adopted() bool { return p.Pins.link != nil }

// Unpinned is the reason why this plane does not outlive its daemon; empty: it does.
func (p *Plane) Unpinned() string { return p.WhyUnpinned }

// Forgotten are the flows of an earlier daemon that could not be adopted; empty: none.
func (p *Plane) Forgotten() string { return p.Pins.Forgotten }

// Mode is where XDP runs: "native" or "generic".
func (p *Plane) Mode() string { return p.mode }

// Counters returns every reason the programs count, in their order, summed over CPUs.
func (p *Plane) Counters() ([]dataplane.Counter, error) {
	var perCPU [][]byte // of each a struct counts
	if err := p.Counts.Lookup(uint32(0), &perCPU); err != nil {
		return nil, fmt.Errorf("read the counters: %w", err)
	}
	out := make([]dataplane.Counter, len(p.Names))
	for i, name := range p.Names {
		out[i].Name = name
		for _, counts := range perCPU {
			out[i].Value += binary.NativeEndian.Uint64(counts[8*i:])
		}
	}
	return out, nil
}

// Tick is the period of the kernel's jiffies, the programs' clock.
func Tick() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGetres(unix.CLOCK_MONOTONIC_COARSE, &ts); err != nil {
		panic(err) // the kernel always has this clock
	}
	return time.Duration(ts.Nano())
}

// Monotonic is the clock that the agent's programs read.
func Monotonic() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		panic(err) // the kernel always has this clock
	}
	return time.Duration(ts.Nano())
}

// revert undoes AttachXDP.
func (p *Plane) revert() error {
	if p.Pins.link == nil {
		return p.Detach()
	}
	old, err := ebpf.LoadPinnedProgram(p.Pins.Path(programPin), nil)
	if err != nil {
		return fmt.Errorf("return to the program before: %w", err)
	}
	defer old.Close()
	p.XDP = nil
	return p.Pins.link.Update(old)
}

// Attach attaches the XDP program, and then the rest by a function, which may be nil. From now
// on flows outlive this process. If a part fails, an earlier daemon's programs and pins are as
// they were.
func (p *Plane) Attach(prog *ebpf.Program, maps map[string]*ebpf.Map, rest func() error) error {
	pinned := map[string]Pinner{programPin: prog}
	for name, m := range maps {
		pinned[name] = m
	}
	if err := p.Pins.Stage(pinned); err != nil {
		return err
	}
	if err := p.AttachXDP(prog); err != nil {
		return errors.Join(err, p.Pins.Unstage())
	}
	if rest != nil {
		if err := rest(); err != nil {
			return errors.Join(err, p.revert(), p.Pins.Unstage())
		}
	}
	return p.Pins.Commit()
}

// Detach detaches the programs, XDP first, so that no packet meets half a data plane, and then
// removes the pins.
func (p *Plane) Detach() error {
	if p.XDP == nil {
		return nil
	}
	errs := []error{p.XDP.Detach()}
	if p.TC != nil {
		errs = append(errs, p.TC.Detach())
		p.TC = nil
	}
	return errors.Join(append(errs, p.Pins.remove())...)
}

// Close frees the memory of this process; pinned programs go on.
func (p *Plane) Close() error {
	var errs []error
	if p.TC != nil {
		errs = append(errs, p.TC.Close())
	}
	if p.XDP != nil {
		errs = append(errs, p.XDP.Close())
	} else if p.Pins.link != nil {
		errs = append(errs, p.Pins.link.Close())
	}
	if p.Lost != nil {
		errs = append(errs, p.Lost.Close())
	}
	return errors.Join(append(errs, p.defaults.close(), p.Pins.Unlock())...)
}

// LoadError keeps the verifier's reason and drops its megabytes.
func LoadError(name string, err error) error {
	var ve *ebpf.VerifierError
	if errors.As(err, &ve) {
		return fmt.Errorf("this kernel's verifier refuses the %s program: %w", name, ve)
	}
	return fmt.Errorf("load the %s programs: %w", name, err)
}
