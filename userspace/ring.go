package userspace

import (
	"fmt"
	"sync/atomic"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// ring is any of a socket's four rings, in memory that the kernel shares: of T, by one producer and
// one consumer, and this side is either. As many entries as there are chunks, so none is ever full.
type ring[T any] struct {
	memory             []byte
	producer, consumer *uint32
	entries            []T
}

// openRing makes a ring of a socket by an option, and maps it.
func openRing[T any](fd, option int, page int64, offsets func(*unix.XDPMmapOffsets) unix.XDPRingOffset) (*ring[T], error) {
	if err := unix.SetsockoptInt(fd, unix.SOL_XDP, option, chunks); err != nil {
		return nil, fmt.Errorf("make a ring: %w", err)
	}
	var all unix.XDPMmapOffsets
	if err := getOption(fd, unix.XDP_MMAP_OFFSETS, &all); err != nil {
		return nil, fmt.Errorf("find a ring: %w", err)
	}
	at := offsets(&all)
	var one T
	memory, err := unix.Mmap(fd, page, int(at.Desc)+chunks*int(unsafe.Sizeof(one)), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_POPULATE)
	if err != nil {
		return nil, fmt.Errorf("map a ring: %w", err)
	}
	return &ring[T]{
		memory:   memory,
		producer: (*uint32)(unsafe.Pointer(&memory[at.Producer])),
		consumer: (*uint32)(unsafe.Pointer(&memory[at.Consumer])),
		entries:  unsafe.Slice((*T)(unsafe.Pointer(&memory[at.Desc])), chunks),
	}, nil
}

// put adds an entry; the kernel is the consumer.
func (r *ring[T]) put(v T) {
	at := *r.producer // this side alone writes it
	r.entries[at%chunks] = v
	atomic.StoreUint32(r.producer, at+1)
}

// take removes the first entry, if there is any; the kernel is the producer.
func (r *ring[T]) take() (v T, ok bool) {
	at := *r.consumer // this side alone writes it
	if atomic.LoadUint32(r.producer) == at {
		return v, false
	}
	v = r.entries[at%chunks]
	atomic.StoreUint32(r.consumer, at+1)
	return v, true
}

// waits reports whether the kernel has entries to take.
func (r *ring[T]) waits() bool { return atomic.LoadUint32(r.consumer) != *r.producer }

func (r *ring[T]) mapped() []byte {
	if r == nil {
		return nil
	}
	return r.memory
}

// getOption reads a socket's option that is a struct.
func getOption[T any](fd, name int, value *T) error {
	size := uint32(unsafe.Sizeof(*value))
	_, _, errno := unix.Syscall6(unix.SYS_GETSOCKOPT, uintptr(fd), unix.SOL_XDP, uintptr(name), uintptr(unsafe.Pointer(value)), uintptr(unsafe.Pointer(&size)), 0)
	return failed(errno)
}

// setOption writes an option.
func setOption[T any](fd, name int, value *T) error {
	_, _, errno := unix.Syscall6(unix.SYS_SETSOCKOPT, uintptr(fd), unix.SOL_XDP, uintptr(name), uintptr(unsafe.Pointer(value)), unsafe.Sizeof(*value), 0)
	return failed(errno)
}

func failed(errno syscall.Errno) error {
	if errno != 0 {
		return errno
	}
	return nil
}
