package testbed

import (
	"encoding/binary"
	"fmt"
	"os"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// The edge of the SR domain (RFC 8754 §5.1): a packet from the client does
// not pass the router if it is for a SID, has a SID as its source, or has a
// routing header.

func (b *Bed) guard() error {
	err := b.Router.space.filter(b.Client.Link, netlink.HANDLE_MIN_INGRESS, b.programs.edge)
	return wrap("testbed: edge", err)
}

// EdgeDrops counts the packets that the edge dropped. It fails once the bed is closed.
func (b *Bed) EdgeDrops() (uint64, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.over {
		return 0, errClosed
	}
	return b.programs.shared.edge.Load(), nil
}

// guarding drops packets that may not enter. r2 goes along the headers, r3 is the end
// of the frame; a truncated packet goes to the kernel, which drops it.
func guarding(array *os.File) *assembly {
	const (
		data, dataEnd         = 76, 80 // in struct __sk_buff
		etherType             = 12
		next, source, target  = 14 + 6, 14 + 8, 14 + 24
		ethernetIPv6          = 14 + 40
		hopByHop, destination = unix.IPPROTO_HOPOPTS, unix.IPPROTO_DSTOPTS
		most                  = 4 // headers of options; RFC 8200 §4.1 has use for three
	)
	block := host16(SIDBlock().Addr().As16())
	a := newAssembly()
	a.point(r6, array)
	a.read(unix.BPF_W, r2, r1, data)
	a.read(unix.BPF_W, r3, r1, dataEnd)
	a.move(r4, r2)
	a.plus(r4, ethernetIPv6)
	a.compare(unix.BPF_JGT, r4, r3, "pass")
	a.read(unix.BPF_H, r4, r2, etherType)
	a.jump(unix.BPF_JNE, r4, host16([16]byte{0x86, 0xdd}), "pass")
	for _, address := range []int16{source, target} {
		a.read(unix.BPF_H, r4, r2, address)
		a.jump(unix.BPF_JEQ, r4, block, "drop")
	}
	a.read(unix.BPF_B, r5, r2, next)
	a.plus(r2, ethernetIPv6)
	for i := range most {
		options := fmt.Sprintf("options %d", i)
		a.jump(unix.BPF_JEQ, r5, unix.IPPROTO_ROUTING, "drop")
		a.jump(unix.BPF_JEQ, r5, hopByHop, options)
		a.jump(unix.BPF_JNE, r5, destination, "pass")
		a.label(options)
		a.move(r4, r2)
		a.plus(r4, 8)
		a.compare(unix.BPF_JGT, r4, r3, "pass")
		a.read(unix.BPF_B, r5, r2, 0) // next header
		a.read(unix.BPF_B, r4, r2, 1) // length in 8 bytes, the first 8 not counted
		a.add(unix.BPF_ALU64|unix.BPF_LSH|unix.BPF_K, r4, 0, 0, 3)
		a.plus(r4, 8)
		a.sum(r2, r4)
	}
	a.label("drop")
	a.count(r6, atEdge)
	a.leave(tcDrop)
	a.label("pass")
	a.leave(tcPass)
	return a
}

// host16 is the first two bytes as a number in this machine's byte order.
func host16(bytes [16]byte) int32 { return int32(binary.NativeEndian.Uint16(bytes[:2])) }
