// Package rig loads the LB's or the agent's programs in a network namespace and passes
// frames through them in virtual time, for the tests of data planes and for proofs.
package rig

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"proffer/dataplane"
	"proffer/topo"
)

// The farm of the program tests: one LB, some servers, a client, two VIPs.
var (
	LbLocator  = netip.MustParsePrefix("fd00:0:0:b::/64")
	OtherLB    = netip.MustParsePrefix("fd00:0:0:c::/64")
	ClientAddr = netip.MustParseAddr("2001:db8:c::7")
	VipAddr    = netip.MustParseAddr("2001:db8:f::1")
	RouterMAC  = topo.MAC{2, 0, 0, 0, 0, 0xfe}
	HereMAC    = topo.MAC{2, 0, 0, 0, 0, 0x11}
	Start      = 1000 * time.Second // of virtual time
)

const (
	ClientPort = 40000
	HuntPort   = 80
	Device     = "eth0"
	FarEnd     = "wire" // the other end of device
	MTU        = 1500
)

func ServerLocator(i int) netip.Prefix {
	a := netip.MustParseAddr("fd00:0:0:100::").As16()
	a[7] = byte(i)
	return netip.PrefixFrom(netip.AddrFrom16(a), 64)
}

func Farm(n int) (servers []topo.Server) {
	for i := range n {
		servers = append(servers, topo.Server{Name: fmt.Sprint("s", i), Locator: ServerLocator(i), Weight: 1})
	}
	return servers
}

// Enter moves the test into a network namespace of its own that has one link.
// The goroutine never leaves its thread, so both end with the test, however it
// ends, and take the namespace with them.
func Enter(t testing.TB) {
	t.Helper()
	NeedRoot(t)
	runtime.LockOSThread()
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		t.Fatalf("make a network namespace: %v", err)
	}
	link := &netlink.Veth{
		LinkAttrs: netlink.LinkAttrs{Name: Device, MTU: MTU, HardwareAddr: HereMAC[:]},
		PeerName:  FarEnd,
	}
	if err := netlink.LinkAdd(link); err != nil {
		t.Fatalf("add %s: %v", Device, err)
	}
	silent := "/proc/sys/net/ipv6/conf/" + FarEnd + "/disable_ipv6" // frames of its own would be counted
	if err := os.WriteFile(silent, []byte("1"), 0); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"lo", Device, FarEnd} {
		l, err := netlink.LinkByName(name)
		if err == nil {
			err = netlink.LinkSetUp(l)
		}
		if err != nil {
			t.Fatalf("set %s up: %v", name, err)
		}
	}
}

// InVirtualTime makes the programs' clock ours, their verdict XDP_TX, and the packets that they
// may send as many as the test likes.
func InVirtualTime(spec *ebpf.CollectionSpec) error {
	if err := spec.Variables["unlimited"].Set(true); err != nil {
		return err
	}
	if err := spec.Variables["virtual_time"].Set(true); err != nil {
		return err
	}
	if m := spec.Maps["syns"]; m != nil {
		m.Flags |= Mmapable
	}
	return spec.Variables["redirect_to"].Set(uint32(0))
}

// Limited is InVirtualTime with the limits of the cost of packets.
func Limited(spec *ebpf.CollectionSpec) error {
	return errors.Join(InVirtualTime(spec), spec.Variables["unlimited"].Set(false))
}

// keeping is a change of a specification that keeps it, too.
func keeping(spec **ebpf.CollectionSpec, change func(*ebpf.CollectionSpec) error) func(*ebpf.CollectionSpec) error {
	return func(s *ebpf.CollectionSpec) error {
		*spec = s
		return change(s)
	}
}

// Hits is the set of counters that the tests of one program have reached.
type Hits map[string]bool

// Rig is a loaded program with the questions that tests ask of all programs.
type Rig struct {
	plane interface {
		Counters() ([]dataplane.Counter, error)
	}
	Names []string
	Prog  *ebpf.Program
	Spec  *ebpf.CollectionSpec // of all programs, as they were loaded
	clock *ebpf.Map            // its one value: virtual_now_ns
	Now   time.Duration
	seen  Hits
	Ctx   any // of the next run, or nil
}

// Outcome is a program's action on one frame.
type Outcome struct {
	Action  uint32
	Frame   []byte
	Reasons []string // counters that moved, sorted
}

// At moves the clock.
func (r *Rig) At(t testing.TB, now time.Duration) {
	t.Helper()
	r.Now = now
	if err := r.clock.Put(uint32(0), uint64(now)); err != nil {
		t.Fatal(err)
	}
}

// Run passes one frame through the program, without a look at the counters.
func (r *Rig) Run(t testing.TB, frame []byte) Outcome {
	t.Helper()
	o := ebpf.RunOptions{Data: frame, DataOut: make([]byte, len(frame)+256), Context: r.Ctx}
	action, err := r.Prog.Run(&o)
	if err != nil {
		t.Fatalf("run %s on %d bytes: %v", r.Prog, len(frame), err)
	}
	return Outcome{Action: action, Frame: o.DataOut}
}

// Send passes one frame through the program and sees which counters moved.
func (r *Rig) Send(t testing.TB, frame []byte) Outcome {
	t.Helper()
	before := r.Counts(t)
	out := r.Run(t, frame)
	for i, n := range r.Counts(t) {
		if name := r.Names[i]; n != before[i] {
			out.Reasons = append(out.Reasons, name)
			r.seen[name] = true
		}
	}
	slices.Sort(out.Reasons)
	return out
}

// Counts reads all counters.
func (r *Rig) Counts(t testing.TB) []uint64 {
	t.Helper()
	all, err := r.plane.Counters()
	if err != nil {
		t.Fatal(err)
	}
	counts := make([]uint64, len(all))
	for i, c := range all {
		counts[i] = c.Value
	}
	return counts
}

// Covers checks that the tests reached every counter but the excepted ones,
// each of which has its reason, and those not.
func (h Hits) Covers(t *testing.T, names []string, except map[string]string) {
	t.Helper()
	for _, name := range names {
		_, excused := except[name]
		if h[name] == excused {
			t.Errorf("counter %s: reached %v, excused %v (%s)", name, h[name], excused, except[name])
		}
	}
}

// Is checks action, counters and frame; want nil: the frame is not compared.
func (o Outcome) Is(t testing.TB, label string, action uint32, want []byte, reasons ...string) {
	t.Helper()
	slices.Sort(reasons)
	if o.Action != action || !slices.Equal(o.Reasons, reasons) {
		t.Errorf("%s: action %d for %v, want %d for %v", label, o.Action, o.Reasons, action, reasons)
	}
	if want != nil && !slices.Equal(o.Frame, want) {
		t.Errorf("%s:\n got %x\nwant %x", label, o.Frame, want)
	}
}

// XDP's verdicts (linux/bpf.h).
const (
	XDPDrop = 1
	XDPPass = 2
	XDPTX   = 3
)

// clockOf finds the map that holds a program's virtual_now_ns, its only variable.
func clockOf(t testing.TB, prog *ebpf.Program) *ebpf.Map {
	t.Helper()
	return SectionOf(t, prog, ".bss")
}

// LinkIndex returns the index of one of the two ends.
func LinkIndex(t testing.TB, name string) int {
	t.Helper()
	l, err := net.InterfaceByName(name)
	if err != nil {
		t.Fatal(err)
	}
	return l.Index
}
