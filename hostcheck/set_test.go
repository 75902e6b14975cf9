package hostcheck

import (
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// set sets a feature of a link, as ethtool does.
func set(t *testing.T, name string, command, to uint32) {
	t.Helper()
	socket, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(socket)
	r := request{value: &value{command, to}}
	copy(r.name[:], name)
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(socket), unix.SIOCETHTOOL, uintptr(unsafe.Pointer(&r))); errno != 0 {
		t.Fatalf("set feature %#x of %s: %v", command, name, errno)
	}
}
