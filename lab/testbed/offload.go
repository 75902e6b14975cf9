package testbed

import (
	"fmt"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// ethtoolValue is struct ethtool_value of linux/ethtool.h.
type ethtoolValue struct {
	command uint32
	data    uint32
}

// ethtoolRequest is struct ifreq of linux/if.h with ifr_data in use.
type ethtoolRequest struct {
	name  [unix.IFNAMSIZ]byte
	value *ethtoolValue
	_     [16]byte // the rest of the union
}

// offload makes a veth end send frames as on a wire: whole checksums and
// lengths within the MTU. The kernel leaves the checksum of a locally made
// packet partial for the device to finish; veth never does, so a program that
// sends the packet elsewhere (XDP_TX, redirect) would freeze it wrong.
func (s *space) offload(name string) error {
	features := []ethtoolValue{
		{unix.ETHTOOL_STSO, 0},
		{unix.ETHTOOL_STXCSUM, 0},
	}
	for _, f := range features {
		if err := ethtool(s.ethtool, name, f); err != nil {
			return fmt.Errorf("set offload %#x of %s to %d: %w", f.command, name, f.data, err)
		}
	}
	return nil
}

func ethtool(socket int, name string, value ethtoolValue) error {
	request := ethtoolRequest{value: &value}
	copy(request.name[:unix.IFNAMSIZ-1], name)
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(socket), unix.SIOCETHTOOL, uintptr(unsafe.Pointer(&request)))
	runtime.KeepAlive(&value)
	if errno != 0 {
		return errno
	}
	return nil
}

// WholeFrames makes a veth end of the calling thread's namespace send frames as on a wire, and
// take those that a program redirects to it.
func WholeFrames(name string) error {
	socket, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open socket: %w", err)
	}
	defer unix.Close(socket)
	s := space{ethtool: socket}
	if err := s.offload(name); err != nil {
		return err
	}
	if err := ethtool(socket, name, ethtoolValue{unix.ETHTOOL_SGRO, 1}); err != nil { // GRO has NAPI
		return fmt.Errorf("turn GRO of %s on: %w", name, err)
	}
	return nil
}
