package lb_test

import (
	"errors"
	"net"
	"slices"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"

	"proffer/dataplane"
	"proffer/proof/rig"
	"proffer/wire"
)

// TestFollowsLink: the attached program sends from the link's address of now, and judges lengths
// by the MTU of now, its own check and the services'. A link made again is another.
func TestFollowsLink(t *testing.T) {
	const narrow = 1400
	r := rig.NewLB(t, rig.Hits{}, rig.Hunting(2, 8))
	dev, err := netlink.LinkByName(rig.Device)
	if err != nil {
		t.Fatal(err)
	}
	if changed, err := r.Follow(); changed != "" || err != nil {
		t.Errorf("a link that is as it was: %q, %v", changed, err)
	}
	mac := net.HardwareAddr{2, 0, 0, 0, 0, 0x77}
	for _, err := range []error{netlink.LinkSetHardwareAddr(dev, mac), netlink.LinkSetMTU(dev, narrow)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	changed, err := r.Follow()
	for _, want := range []string{"address " + net.HardwareAddr(rig.HereMAC[:]).String() + " is now " + mac.String(), "MTU 1500 is now 1400"} {
		if err != nil || !strings.Contains(changed, want) {
			t.Errorf("it followed %q, %v; want %q", changed, err, want)
		}
	}
	offer := rig.Inward(rig.HuntPort, wire.SYN)
	offer.To = [6]byte(mac)
	if out := r.Send(t, offer.Frame()); !slices.Equal(out.Frame[6:12], mac) || !slices.Equal(out.Reasons, []string{"offer"}) {
		t.Errorf("an offer for %v: %x", out.Reasons, out.Frame[:14])
	}
	long := rig.Inward(rig.HuntPort, wire.ACK)
	long.To = [6]byte(mac)
	long.Payload = make([]byte, narrow-60)
	if out := r.Send(t, long.Frame()); !slices.Equal(out.Reasons, []string{"too_big"}) {
		t.Errorf("a packet as long as the new MTU: %v", out.Reasons)
	}
	if got, want := r.RecordOf(r.Cfg.Services[0].VIP).Mtu, uint16(narrow-(40+8+2*16)); got != want {
		t.Errorf("the service has room for %d bytes, want %d", got, want)
	}
	if err := netlink.LinkDel(dev); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Follow(); !errors.Is(err, dataplane.ErrLinkGone) {
		t.Errorf("a deleted link: %v", err)
	}
}
