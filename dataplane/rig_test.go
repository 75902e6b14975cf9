package dataplane

import (
	"fmt"
	"net"
	"net/netip"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"proffer/topo"
)

// The farm of the program tests: one LB, some servers, a client, two VIPs.
var (
	lbLocator  = netip.MustParsePrefix("fd00:0:0:b::/64")
	clientAddr = netip.MustParseAddr("2001:db8:c::7")
	vipAddr    = netip.MustParseAddr("2001:db8:f::1")
	routerMAC  = topo.MAC{2, 0, 0, 0, 0, 0xfe}
	hereMAC    = topo.MAC{2, 0, 0, 0, 0, 0x11}
	start      = 1000 * time.Second // of virtual time
)

const (
	clientPort = 40000
	huntPort   = 80
	device     = "eth0"
	farEnd     = "wire" // the other end of device
	mtu        = 1500
)

func serverLocator(i int) netip.Prefix {
	a := netip.MustParseAddr("fd00:0:0:100::").As16()
	a[7] = byte(i)
	return netip.PrefixFrom(netip.AddrFrom16(a), 64)
}

func farm(n int) (servers []topo.Server) {
	for i := range n {
		servers = append(servers, topo.Server{Name: fmt.Sprint("s", i), Locator: serverLocator(i), Weight: 1})
	}
	return servers
}

// enter moves the test into a network namespace of its own that has one link.
// The goroutine never leaves its thread, so both end with the test, however it
// ends, and take the namespace with them.
func enter(t testing.TB) {
	t.Helper()
	needRoot(t)
	runtime.LockOSThread()
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		t.Fatalf("make a network namespace: %v", err)
	}
	link := &netlink.Veth{
		LinkAttrs: netlink.LinkAttrs{Name: device, MTU: mtu, HardwareAddr: hereMAC[:]},
		PeerName:  farEnd,
	}
	if err := netlink.LinkAdd(link); err != nil {
		t.Fatalf("add %s: %v", device, err)
	}
	for _, name := range []string{"lo", device, farEnd} {
		l, err := netlink.LinkByName(name)
		if err == nil {
			err = netlink.LinkSetUp(l)
		}
		if err != nil {
			t.Fatalf("set %s up: %v", name, err)
		}
	}
}

// inVirtualTime makes the programs' clock ours, and their verdict XDP_TX.
func inVirtualTime(spec *ebpf.CollectionSpec) error {
	if err := spec.Variables["virtual_time"].Set(true); err != nil {
		return err
	}
	if m := spec.Maps["syns"]; m != nil {
		m.Flags |= mmapable
	}
	return spec.Variables["redirect_to"].Set(uint32(0))
}

// hits is the set of counters that the tests of one program have reached.
type hits map[string]bool

// rig is a loaded program with what a test asks of every one.
type rig struct {
	plane *plane
	prog  *ebpf.Program
	clock *ebpf.Map // its one value: virtual_now_ns
	now   time.Duration
	seen  hits
	ctx   any // of the next run, or nil
}

// outcome is what a program did with one frame.
type outcome struct {
	action  uint32
	frame   []byte
	reasons []string // counters that moved, sorted
}

// at moves the clock.
func (r *rig) at(t testing.TB, now time.Duration) {
	t.Helper()
	r.now = now
	if err := r.clock.Put(uint32(0), uint64(now)); err != nil {
		t.Fatal(err)
	}
}

// run passes one frame through the program, without a look at the counters.
func (r *rig) run(t testing.TB, frame []byte) outcome {
	t.Helper()
	o := ebpf.RunOptions{Data: frame, DataOut: make([]byte, len(frame)+256), Context: r.ctx}
	action, err := r.prog.Run(&o)
	if err != nil {
		t.Fatalf("run %s on %d bytes: %v", r.prog, len(frame), err)
	}
	return outcome{action: action, frame: o.DataOut}
}

// send passes one frame through the program and sees which counters moved.
func (r *rig) send(t testing.TB, frame []byte) outcome {
	t.Helper()
	before := r.counts(t)
	out := r.run(t, frame)
	for i, n := range r.counts(t) {
		if name := r.plane.names[i]; n != before[i] {
			out.reasons = append(out.reasons, name)
			r.seen[name] = true
		}
	}
	slices.Sort(out.reasons)
	return out
}

// counts reads all counters.
func (r *rig) counts(t testing.TB) []uint64 {
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

// covers checks that the tests reached every counter but the excepted ones,
// each of which has its reason, and those not.
func (h hits) covers(t *testing.T, names []string, except map[string]string) {
	t.Helper()
	for _, name := range names {
		_, excused := except[name]
		if h[name] == excused {
			t.Errorf("counter %s: reached %v, excused %v (%s)", name, h[name], excused, except[name])
		}
	}
}

// is checks action, counters and frame; want nil: the frame is not compared.
func (o outcome) is(t testing.TB, what string, action uint32, want []byte, reasons ...string) {
	t.Helper()
	slices.Sort(reasons)
	if o.action != action || !slices.Equal(o.reasons, reasons) {
		t.Errorf("%s: action %d for %v, want %d for %v", what, o.action, o.reasons, action, reasons)
	}
	if want != nil && !slices.Equal(o.frame, want) {
		t.Errorf("%s:\n got %x\nwant %x", what, o.frame, want)
	}
}

// XDP's verdicts (linux/bpf.h).
const (
	xdpDrop = 1
	xdpPass = 2
	xdpTX   = 3
)

// clockOf finds the map that holds a program's virtual_now_ns, its only variable.
func clockOf(t testing.TB, prog *ebpf.Program) *ebpf.Map {
	t.Helper()
	return sectionOf(t, prog, ".bss")
}

// linkIndex returns the index of one of the two ends.
func linkIndex(t testing.TB, name string) int {
	t.Helper()
	l, err := net.InterfaceByName(name)
	if err != nil {
		t.Fatal(err)
	}
	return l.Index
}
