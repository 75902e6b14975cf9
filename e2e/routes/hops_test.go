package routes

import (
	"encoding/binary"
	"net/netip"
	"testing"

	"golang.org/x/sys/unix"

	"proffer/e2e/kit"
	"proffer/lab/testbed"
)

// TestLastHopIsTheLB: a client whose packet ends at the LB, behind the router, is told so by the LB's own address, in
// either family, as a trace of the way to a VIP asks for.
func TestLastHopIsTheLB(t *testing.T) {
	bed := kit.Up(t, testbed.Config{Servers: 1})
	kit.Start(t, bed, kit.Everywhere(bed, kit.Settings(t, "single")))
	lb := bed.LBs[0]
	for vip, want := range map[netip.Addr]netip.Addr{bed.VIP: lb.Addr, bed.VIP4: lb.Addr4} {
		var fd int
		kit.Must(t, bed.Client.Do(func() (err error) {
			fd, err = traced(netip.AddrPortFrom(vip, testbed.Port))
			return err
		}))
		defer unix.Close(fd)
		last := netip.Addr{}
		kit.Eventually(t, "the LB tells the client of "+vip.String(), func() bool {
			_, _ = unix.Write(fd, []byte("x")) // an error that waits is returned first
			if from, ok := offender(fd); ok {
				last = from
			}
			return last == want
		})
	}
}

// traced is a datagram socket of which the packets end behind the router.
func traced(to netip.AddrPort) (fd int, err error) {
	family, level, hops, errors := unix.AF_INET6, unix.IPPROTO_IPV6, unix.IPV6_UNICAST_HOPS, unix.IPV6_RECVERR
	var at unix.Sockaddr = &unix.SockaddrInet6{Port: int(to.Port()), Addr: to.Addr().As16()}
	if to.Addr().Is4() {
		family, level, hops, errors = unix.AF_INET, unix.IPPROTO_IP, unix.IP_TTL, unix.IP_RECVERR
		at = &unix.SockaddrInet4{Port: int(to.Port()), Addr: to.Addr().As4()}
	}
	if fd, err = unix.Socket(family, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0); err != nil {
		return fd, err
	}
	for option, value := range map[int]int{hops: 2, errors: 1} {
		if err := unix.SetsockoptInt(fd, level, option, value); err != nil {
			return fd, err
		}
	}
	return fd, unix.Connect(fd, at)
}

// offender is the sender of a time exceeded in a socket's queue of errors: struct sock_extended_err, and its address.
func offender(fd int) (from netip.Addr, ok bool) {
	const originICMP, originICMP6, bytes = 2, 3, 16
	control := make([]byte, 512)
	_, n, _, _, err := unix.Recvmsg(fd, make([]byte, 100), control, unix.MSG_ERRQUEUE)
	if err != nil {
		return from, false
	}
	all, err := unix.ParseSocketControlMessage(control[:n])
	for _, m := range all {
		d := m.Data
		if len(d) < bytes+8 || d[4] != originICMP && d[4] != originICMP6 {
			continue
		}
		if d[5] != 11 && d[5] != 3 || d[6] != 0 {
			continue
		}
		if binary.NativeEndian.Uint16(d[bytes:]) == unix.AF_INET {
			return netip.AddrFrom4([4]byte(d[bytes+4:])), true
		}
		if len(d) >= bytes+24 {
			return netip.AddrFrom16([16]byte(d[bytes+8:])), true
		}
	}
	return from, err == nil && from.IsValid()
}
