package lb_test

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"proffer/proof/rig"
	"proffer/wire"
)

// virtual is the link address of a virtual router (RFC 9568 §7.3).
var virtual = net.HardwareAddr{0, 0, 0x5e, 0, 2, 1}

// macvlan makes one above the rig's link.
func macvlan(t *testing.T, change func(*netlink.Macvlan)) netlink.Link {
	t.Helper()
	dev, err := netlink.LinkByName(rig.Device)
	if err != nil {
		t.Fatal(err)
	}
	m := &netlink.Macvlan{LinkAttrs: netlink.NewLinkAttrs(), Mode: netlink.MACVLAN_MODE_PRIVATE}
	m.Name, m.ParentIndex, m.HardwareAddr = "vrrp.1", dev.Attrs().Index, virtual
	change(m)
	if err := netlink.LinkAdd(m); err != nil {
		t.Fatal(err)
	}
	return m
}

// wantTaken sends packets of either family and a server's signal in frames for a link address: they are taken, or its
// address is named.
func wantTaken(t *testing.T, r *rig.LB, label string, mac net.HardwareAddr, want bool) {
	t.Helper()
	if _, err := r.Follow(); err != nil {
		t.Fatal(err)
	}
	syn := rig.Inward(rig.HuntPort, wire.SYN)
	for _, frame := range [][]byte{syn.Frame(), rig.OverIPv4(syn).Frame(), rig.SignalFrom(0, rig.SynAck(rig.HuntPort), wire.CreateStickiness, 5)} {
		copy(frame, mac)
		out := r.Send(t, frame)
		if took := !slices.Equal(out.Reasons, []string{"pass_other_host"}); took != want {
			t.Errorf("%s: %v, want taken: %v", label, out.Reasons, want)
		}
	}
	if _, err := r.Follow(); err != nil {
		t.Fatal(err)
	}
	if named := strings.Contains(strings.Join(r.Advice(), "\n"), "for the link address "+mac.String()); named == want {
		t.Errorf("%s: the advice names it: %v: %q", label, named, r.Advice())
	}
}

// TestServesListed: frames for an address that an operator gave the link, and for a virtual router's that the link lets
// in, are taken until it is gone. Another that the link lets in may be a container's, so it is named with the command
// that gives it to the link.
func TestServesListed(t *testing.T) {
	r := rig.NewLB(t, rig.Hits{}, rig.Hunting(2, 8))
	run := func(command string) {
		t.Helper()
		args := strings.Fields(command)
		if out, err := exec.Command(args[0], args[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%s: %v: %s", command, err, out)
		}
	}
	some, four := net.HardwareAddr{2, 0, 0, 0, 9, 9}, net.HardwareAddr{0, 0, 0x5e, 0, 1, 7}
	for _, mac := range []net.HardwareAddr{virtual, four} {
		wantTaken(t, r, "nowhere", mac, false)
		run("bridge fdb add " + mac.String() + " dev eth0 self permanent")
		wantTaken(t, r, "bridge fdb", mac, true)
		run("bridge fdb del " + mac.String() + " dev eth0 self")
		wantTaken(t, r, "no more", mac, false)
	}
	run("ip maddr add " + some.String() + " dev eth0")
	wantTaken(t, r, "ip maddr", some, true)
	run("ip maddr del " + some.String() + " dev eth0")
	wantTaken(t, r, "no more", some, false)
	run("bridge fdb add " + some.String() + " dev eth0 self permanent")
	wantTaken(t, r, "let in, of a host out of sight", some, false)
	if all := strings.Join(r.Advice(), "\n"); !strings.Contains(all, "`ip maddr add "+some.String()+" dev eth0`") {
		t.Errorf("the advice is %q", all)
	}
	run("ip maddr add " + some.String() + " dev eth0")
	wantTaken(t, r, "the advice followed", some, true)

	m := macvlan(t, func(*netlink.Macvlan) {})
	container := exec.Command("unshare", "-n", "sleep", "60") // a namespace
	if err := container.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = container.Process.Kill()
		_ = container.Wait()
	}()
	here, err := os.Readlink("/proc/thread-self/ns/net")
	if err != nil {
		t.Fatal(err)
	}
	for {
		if there, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/net", container.Process.Pid)); err == nil && there != here {
			break
		}
		time.Sleep(time.Millisecond)
	}
	run(fmt.Sprintf("ip link set %s netns %d", m.Attrs().Name, container.Process.Pid))
	wantTaken(t, r, "a macvlan elsewhere that is down", virtual, false)
	run(fmt.Sprintf("nsenter -n -t %d ip link set %s up", container.Process.Pid, m.Attrs().Name))
	wantTaken(t, r, "a macvlan elsewhere", virtual, true)
	run(fmt.Sprintf("nsenter -n -t %d ip link del %s", container.Process.Pid, m.Attrs().Name))
	wantTaken(t, r, "gone there", virtual, false)

	run("ip link add link eth0 name vrrp.2 type macvlan mode passthru")
	run("ip link set vrrp.2 address " + virtual.String() + " up")
	wantTaken(t, r, "a macvlan that has all frames of the link", virtual, true)
}

// TestServesMacvlans: frames for the address of a macvlan above the link are taken from when it is up until it is
// gone, with packets of either family and a server's signals; those for a macvlan that is no host's interface are
// not, and their address is named, as is any other that VIPs' packets come for.
func TestServesMacvlans(t *testing.T) {
	r := rig.NewLB(t, rig.Hits{}, rig.Hunting(2, 8))
	takes := func(label string, want bool) {
		t.Helper()
		wantTaken(t, r, label, virtual, want)
	}
	takes("no macvlan", false)
	for _, mode := range []netlink.MacvlanMode{netlink.MACVLAN_MODE_PRIVATE, netlink.MACVLAN_MODE_BRIDGE, netlink.MACVLAN_MODE_VEPA} {
		m := macvlan(t, func(m *netlink.Macvlan) { m.Mode = mode })
		takes("down", false)
		if err := netlink.LinkSetUp(m); err != nil {
			t.Fatal(err)
		}
		takes("up", true)
		if err := netlink.LinkDel(m); err != nil {
			t.Fatal(err)
		}
		takes("gone", false)
	}
	source := macvlan(t, func(m *netlink.Macvlan) { m.Mode = netlink.MACVLAN_MODE_SOURCE })
	if err := netlink.LinkSetUp(source); err != nil {
		t.Fatal(err)
	}
	takes("by the sender", false)
	if err := netlink.LinkDel(source); err != nil {
		t.Fatal(err)
	}
	bridge := &netlink.Bridge{LinkAttrs: netlink.NewLinkAttrs()}
	bridge.Name = "br0"
	port := macvlan(t, func(*netlink.Macvlan) {})
	for _, err := range []error{netlink.LinkSetUp(port), netlink.LinkAdd(bridge), netlink.LinkSetMaster(port, bridge)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	takes("a port of a bridge", false)
	if err := netlink.LinkDel(port); err != nil {
		t.Fatal(err)
	}
	dev, err := netlink.LinkByName(rig.Device)
	if err != nil {
		t.Fatal(err)
	}
	tap := &netlink.Macvtap{Macvlan: netlink.Macvlan{LinkAttrs: netlink.NewLinkAttrs(), Mode: netlink.MACVLAN_MODE_BRIDGE}}
	tap.Name, tap.ParentIndex, tap.HardwareAddr = "tap0", dev.Attrs().Index, virtual
	for _, err := range []error{netlink.LinkAdd(tap), netlink.LinkSetUp(tap)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	takes("a virtual machine's", false)
}

// TestStrangersAreNamed: of frames for other addresses only those with packets for a VIP, and no groups.
func TestStrangersAreNamed(t *testing.T) {
	r := rig.NewLB(t, rig.Hits{}, rig.Hunting(2, 8))
	syn, elsewhere := rig.Inward(rig.HuntPort, wire.SYN).Frame(), rig.Inward(rig.HuntPort, wire.SYN).Frame()
	elsewhere[14+24] ^= 1 << 6 // another destination
	for _, c := range []struct {
		frame []byte
		to    net.HardwareAddr
		named bool
	}{
		{syn, net.HardwareAddr{2, 0, 0, 0, 9, 1}, true}, {elsewhere, net.HardwareAddr{2, 0, 0, 0, 9, 2}, false},
		{syn, net.HardwareAddr{0x33, 0x33, 0, 0, 9, 3}, false}, {syn, net.HardwareAddr{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}, false},
	} {
		frame := slices.Clone(c.frame)
		copy(frame, c.to)
		r.Send(t, frame).Is(t, c.to.String(), rig.XDPPass, frame, "pass_other_host")
		if _, err := r.Follow(); err != nil {
			t.Fatal(err)
		}
		if is := strings.Contains(strings.Join(r.Advice(), "\n"), c.to.String()); is != c.named {
			t.Errorf("%v is named: %v, want %v", c.to, is, c.named)
		}
	}
}
