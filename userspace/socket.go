package userspace

import (
	"errors"
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

const (
	chunks     = 1024 // a power of two
	chunkBytes = 4096 // more than a frame of XDP and its headroom
)

// socket is an AF_XDP socket in copy mode, which every driver has. Its memory is chunks of one frame:
// each is with the kernel for a frame to come, here, or with the kernel to be sent.
//
//	fill -> receive -> a function -> fill
//	                              -> send -> completed -> fill
type socket struct {
	fd              int
	memory          []byte
	fill, completed *ring[uint64]
	receive, send   *ring[unix.XDPDesc]
}

// openSocket opens a socket at the first queue of a link.
func openSocket(link int) (_ *socket, err error) {
	s := new(socket)
	if s.fd, err = unix.Socket(unix.AF_XDP, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0); err != nil {
		return nil, fmt.Errorf("open an AF_XDP socket (needs CAP_NET_RAW): %w", err)
	}
	if err := s.open(link); err != nil {
		return nil, errors.Join(err, s.close())
	}
	return s, nil
}

func (s *socket) open(link int) (err error) {
	s.memory, err = unix.Mmap(-1, 0, chunks*chunkBytes, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_POPULATE)
	if err != nil {
		return fmt.Errorf("get memory for frames: %w", err)
	}
	if err := register(s.fd, s.memory); err != nil {
		return fmt.Errorf("give the kernel %d MiB for frames (limited by RLIMIT_MEMLOCK): %w", len(s.memory)>>20, err)
	}
	if s.fill, err = openRing[uint64](s.fd, unix.XDP_UMEM_FILL_RING, unix.XDP_UMEM_PGOFF_FILL_RING, func(o *unix.XDPMmapOffsets) unix.XDPRingOffset { return o.Fr }); err != nil {
		return err
	}
	if s.completed, err = openRing[uint64](s.fd, unix.XDP_UMEM_COMPLETION_RING, unix.XDP_UMEM_PGOFF_COMPLETION_RING, func(o *unix.XDPMmapOffsets) unix.XDPRingOffset { return o.Cr }); err != nil {
		return err
	}
	if s.receive, err = openRing[unix.XDPDesc](s.fd, unix.XDP_RX_RING, unix.XDP_PGOFF_RX_RING, func(o *unix.XDPMmapOffsets) unix.XDPRingOffset { return o.Rx }); err != nil {
		return err
	}
	if s.send, err = openRing[unix.XDPDesc](s.fd, unix.XDP_TX_RING, unix.XDP_PGOFF_TX_RING, func(o *unix.XDPMmapOffsets) unix.XDPRingOffset { return o.Tx }); err != nil {
		return err
	}
	for i := range uint64(chunks) {
		s.fill.put(i * chunkBytes)
	}
	if err := unix.Bind(s.fd, &unix.SockaddrXDP{Flags: unix.XDP_COPY, Ifindex: uint32(link)}); err != nil {
		return fmt.Errorf("bind an AF_XDP socket to link %d: %w", link, err)
	}
	return nil
}

// poll calls f with each frame that is there, changed in place, and sends those again for which f
// returns true. It does not wait.
func (s *socket) poll(f func(frame []byte) bool) (received int) {
	for at, ok := s.completed.take(); ok; at, ok = s.completed.take() {
		s.fill.put(at &^ (chunkBytes - 1))
	}
	for received < chunks {
		d, ok := s.receive.take()
		if !ok {
			break
		}
		received++
		if f(s.memory[d.Addr:][:d.Len:d.Len]) {
			s.send.put(unix.XDPDesc{Addr: d.Addr, Len: d.Len})
		} else {
			s.fill.put(d.Addr &^ (chunkBytes - 1))
		}
	}
	if s.send.waits() { // the kernel sends some at a time; the rest waits for the next call
		_, _, _ = unix.RawSyscall6(unix.SYS_SENDTO, uintptr(s.fd), 0, 0, unix.MSG_DONTWAIT, 0, 0)
	}
	return received
}

// lost is the frames that came while the program was too slow.
func (s *socket) lost() (uint64, error) {
	var n unix.XDPStatistics
	if err := getOption(s.fd, unix.XDP_STATISTICS, &n); err != nil {
		return 0, fmt.Errorf("read the socket's statistics: %w", err)
	}
	return n.Rx_dropped + n.Rx_ring_full, nil
}

// close ends the socket. Its memory may go afterwards alone.
func (s *socket) close() error {
	err := unix.Close(s.fd)
	for _, m := range [][]byte{s.fill.mapped(), s.completed.mapped(), s.receive.mapped(), s.send.mapped(), s.memory} {
		if m != nil {
			err = errors.Join(err, unix.Munmap(m))
		}
	}
	return err
}

// register gives the kernel the memory of the frames.
func register(fd int, memory []byte) error {
	at := uint64(uintptr(unsafe.Pointer(unsafe.SliceData(memory))))
	return setOption(fd, unix.XDP_UMEM_REG, &unix.XDPUmemReg{Addr: at, Len: uint64(len(memory)), Size: chunkBytes})
}
