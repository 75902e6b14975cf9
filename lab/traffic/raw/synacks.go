package raw

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// SYNACKs watches servers' links for SYN-ACKs and counts the servers that answered each SYN:
// each of them has a request socket for it.
type SYNACKs struct {
	mu      sync.Mutex
	servers map[synOf]map[string]bool
	taps    []*os.File
	readers sync.WaitGroup
}

// synOf names a SYN: its client and its sequence number.
type synOf struct {
	client netip.AddrPort
	isn    uint32
}

// Watch adds a server's link, where enter leads.
func (s *SYNACKs) Watch(server, device string, enter func() error) error {
	var tap *os.File
	var own net.HardwareAddr
	err := Inside(enter, func() error {
		link, err := net.InterfaceByName(device)
		if err != nil {
			return err
		}
		own = link.HardwareAddr
		all := binary.NativeEndian.Uint16([]byte{unix.ETH_P_ALL >> 8, unix.ETH_P_ALL & 0xff})
		fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, int(all))
		if err != nil {
			return os.NewSyscallError("socket", err)
		}
		tap = os.NewFile(uintptr(fd), "packet socket")
		return os.NewSyscallError("bind", unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: all, Ifindex: link.Index}))
	})
	if tap != nil {
		s.taps = append(s.taps, tap)
	}
	if err != nil {
		return fmt.Errorf("watch %s of %s: %w", device, server, err)
	}
	s.readers.Go(func() { s.read(tap, server, own) })
	return nil
}

func (s *SYNACKs) read(tap *os.File, server string, own net.HardwareAddr) {
	frame := make([]byte, 256)
	for {
		n, err := tap.Read(frame)
		if err != nil { // closed
			return
		}
		if n < 14 || !bytes.Equal(frame[6:12], own) {
			continue
		}
		if h, ok := answered(frame[14:n]); ok {
			s.note(h, server)
		}
	}
}

func (s *SYNACKs) note(h synOf, server string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.servers == nil {
		s.servers = map[synOf]map[string]bool{}
	}
	if s.servers[h] == nil {
		s.servers[h] = map[string]bool{}
	}
	s.servers[h][server] = true
}

// answered is the SYN that a SYN-ACK answers, whatever IPv6 headers are around it.
func answered(p []byte) (h synOf, ok bool) {
	const ipv6, tcp = 40, 20
	next, to := byte(unix.IPPROTO_IPV6), netip.Addr{}
	for {
		switch {
		case next == unix.IPPROTO_IPV6 && len(p) >= ipv6:
			next, to, p = p[6], netip.AddrFrom16([16]byte(p[24:40])), p[ipv6:]
		case next == unix.IPPROTO_ROUTING && len(p) >= 8 && len(p) >= 8+8*int(p[1]):
			next, p = p[0], p[8+8*int(p[1]):]
		case next == unix.IPPROTO_TCP && len(p) >= tcp:
			const synAck = 0x12
			h = synOf{netip.AddrPortFrom(to, binary.BigEndian.Uint16(p[2:])), binary.BigEndian.Uint32(p[8:]) - 1}
			return h, p[13]&0x3f == synAck
		default:
			return h, false
		}
	}
}

// Most is, for each client, the largest number of servers that answered one SYN of its.
func (s *SYNACKs) Most() map[netip.AddrPort]int {
	s.mu.Lock()
	defer s.mu.Unlock()
	most := map[netip.AddrPort]int{}
	for h, servers := range s.servers {
		most[h.client] = max(most[h.client], len(servers))
	}
	return most
}

// Close ends the watch.
func (s *SYNACKs) Close() error {
	var errs []error
	for _, tap := range s.taps {
		errs = append(errs, tap.Close())
	}
	s.readers.Wait()
	return errors.Join(errs...)
}
