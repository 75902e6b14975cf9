package hook_test

import (
	"net"
	"runtime"
	"strings"
	"testing"
	"unsafe"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"proffer/dataplane/internal/hook"
	"proffer/proof/rig"
)

// stripping turns a link's offload of VLAN tags on or off.
func stripping(t *testing.T, link string, on bool) {
	t.Helper()
	socket, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(socket)
	value := struct{ command, data uint32 }{unix.ETHTOOL_SFLAGS, 0}
	if on {
		value.data = 1 << 8 // ETH_FLAG_RXVLAN
	}
	request := struct {
		name  [unix.IFNAMSIZ]byte
		value unsafe.Pointer
		_     [16]byte
	}{value: unsafe.Pointer(&value)}
	copy(request.name[:], link)
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(socket), unix.SIOCETHTOOL, uintptr(unsafe.Pointer(&request)))
	runtime.KeepAlive(&value)
	if errno != 0 {
		t.Fatalf("set the offload of VLAN tags to %v: %v", on, errno)
	}
}

// TestStrippedVLANs: docs/failures.md, VLANs: a link that strips the tags of its VLANs is
// named with the command that helps, and no other.
func TestStrippedVLANs(t *testing.T) {
	rig.Enter(t)
	dev, err := net.InterfaceByName(rig.Device)
	if err != nil {
		t.Fatal(err)
	}
	var links []netlink.Link // this kernel may have no VLANs
	advises := func(when string, want ...string) {
		t.Helper()
		got, err := hook.StrippedAmong(dev, links)
		if err != nil || (got == "") != (len(want) == 0) {
			t.Fatalf("%s: %q, %v", when, got, err)
		}
		for _, w := range want {
			if !strings.Contains(got, w) {
				t.Errorf("%s: %q lacks %q", when, got, w)
			}
		}
	}
	stripping(t, rig.Device, true)
	advises("without VLANs")
	for link, parent := range map[string]string{"eth0.7": rig.Device, "wire.8": rig.FarEnd} {
		links = append(links, &netlink.Vlan{LinkAttrs: netlink.LinkAttrs{Name: link, ParentIndex: rig.LinkIndex(t, parent)}})
	}
	advises("with a VLAN", "eth0.7", "`ethtool -K eth0 rxvlan off`")
	if got, _ := hook.StrippedAmong(dev, links); strings.Contains(got, "wire.8") {
		t.Errorf("another link's VLAN: %q", got)
	}
	stripping(t, rig.Device, false)
	advises("tags stay")
}
