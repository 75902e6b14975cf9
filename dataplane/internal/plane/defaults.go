package plane

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"sync/atomic"
	"unsafe"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"proffer/dataplane/objects"
	"proffer/topo"
)

// defaults are the default routes' next hops, and the bits of addresses that have another route
// (bpf/packet/nexthop.h), in memory shared with the programs.
type defaults struct{ words []uint64 }

// Where they are in words, as in struct defaults.
const (
	defaultBits = 2 // behind the next hops of IPv6 and IPv4: zones of IPv6, of IPv4, and hashed
	zoneBits    = 1 << 16
)

var ipv6, ipv4 = netip.PrefixFrom(netip.IPv6Unspecified(), 0), netip.PrefixFrom(netip.IPv4Unspecified(), 0)

func newDefaults(m *ebpf.Map) (*defaults, error) {
	n := int(m.ValueSize()) / 8
	memory, err := unix.Mmap(m.FD(), 0, 8*n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("map the default next hops into memory: %w", err)
	}
	return &defaults{unsafe.Slice((*uint64)(unsafe.Pointer(&memory[0])), n)}, nil
}

func (d *defaults) close() error {
	if d == nil {
		return nil
	}
	return unix.MunmapPtr(unsafe.Pointer(&d.words[0]), uintptr(8*len(d.words)))
}

// bitsOfRoutes are those of all routes but the default routes.
func bitsOfRoutes(hops topo.NextHops) []uint64 {
	bits := make([]uint64, 3*zoneBits/64)
	for p := range hops {
		a, first, n := p.Addr().As16(), 0, p.Bits()
		zone, whole, key := binary.BigEndian.Uint16(a[:]), 64, a[:8]
		if p.Addr().Is4() {
			first, zone, whole, key = zoneBits, binary.BigEndian.Uint16(a[12:]), 32, a[8:]
		}
		switch {
		case n == 0:
		case n >= whole:
			i := 2*zoneBits + int(binary.NativeEndian.Uint64(key)*0x9e3779b97f4a7c15>>48)
			bits[i/64] |= 1 << (i % 64)
		default:
			for i := range 1 << max(16-n, 0) {
				i += first + int(zone)
				bits[i/64] |= 1 << (i % 64)
			}
		}
	}
	return bits
}

// cover sets the bits of routes that are to be added.
func (d *defaults) cover(bits []uint64) {
	for i, word := range bits {
		atomic.OrUint64(&d.words[defaultBits+i], word)
	}
}

// serve gives the programs the default routes' next hops.
func (d *defaults) serve(hops topo.NextHops) {
	for i, p := range []netip.Prefix{ipv6, ipv4} {
		var hop uint64
		if mac := hops[p]; mac != (topo.MAC{}) {
			hop = binary.NativeEndian.Uint64(append(mac[:], 1, 0))
		}
		atomic.StoreUint64(&d.words[i], hop)
	}
}

// uncover leaves the bits of routes that are there alone.
func (d *defaults) uncover(bits []uint64) {
	for i, word := range bits {
		atomic.StoreUint64(&d.words[defaultBits+i], word)
	}
}

var _ = [1]struct{}{}[unsafe.Sizeof(objects.LBDefaults{})-8*(defaultBits+3*zoneBits/64)]
