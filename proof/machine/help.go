package machine

import (
	"fmt"

	"github.com/cilium/ebpf/asm"
)

const (
	failed = ^uint64(0)
	etHLen = 14 // ETH_HLEN, the least that a frame may shrink to
)

// Help is a call of one of the kernel's helpers by an XDP program. The clock stands,
// and chance is a zero.
func (k *Kernel) Help(c *Code, helper asm.BuiltinFunc, p *CPU) {
	k.Spent += priceOfHelp
	r := p.Reg
	clear(p.Reg[:6])
	switch helper {
	case asm.FnMapLookupElem:
		m := k.maps[r[1]-atMaps]
		p.Reg[0] = k.lookup(m, k.Memory(r[2], int(m.KeySize())))
	case asm.FnLoop:
		p.Reg[0] = k.loop(c, p, r)
	case asm.FnTailCall:
		*p = c.Call(k.programs[r[3]], atStack, r[1])
	case asm.FnXdpAdjustHead:
		k.behead(p, int(int32(r[2])))
	case asm.FnXdpAdjustTail:
		k.shrink(p, int(int32(r[2])))
	case asm.FnXdpLoadBytes, asm.FnXdpStoreBytes:
		k.copyBytes(p, helper == asm.FnXdpLoadBytes, r)
	case asm.FnXdpGetBuffLen:
		p.Reg[0] = uint64(k.end - k.data)
	case asm.FnCsumDiff:
		k.Spent += int(r[2]+r[4]) / priceOfWord
		p.Reg[0] = k.checksum(r)
	case asm.FnRedirect:
		p.Reg[0] = redirected
	case asm.FnRingbufOutput, asm.FnSpinLock, asm.FnSpinUnlock,
		asm.FnKtimeGetNs, asm.FnKtimeGetCoarseNs, asm.FnJiffies64, asm.FnGetPrandomU32, asm.FnGetSmpProcessorId:
	default:
		panic(fmt.Sprintf("%v: not known here", helper))
	}
}

const redirected = 4 // XDP_REDIRECT

// loop calls a function up to r1 times; its stack is behind the caller's.
func (k *Kernel) loop(c *Code, p *CPU, r [11]uint64) uint64 {
	for i := range r[1] {
		if k.call(c.CallAt(r[2], p.Reg[10], i, r[3])) != 0 {
			return i + 1
		}
	}
	return r[1]
}

// behead moves the frame's beginning.
func (k *Kernel) behead(p *CPU, by int) {
	to := k.data + by
	if to < 0 || to > k.end-etHLen {
		p.Reg[0] = failed
		return
	}
	k.data = to
}

// shrink moves the frame's end; bytes that come to a frame are zero.
func (k *Kernel) shrink(p *CPU, by int) {
	to := k.end + by
	if to < k.data+etHLen {
		p.Reg[0] = failed
		return
	}
	for len(k.frame) < to {
		k.frame = append(k.frame, 0)
	}
	k.end = to
}

func (k *Kernel) copyBytes(p *CPU, load bool, r [11]uint64) {
	at, n := k.data+int(uint32(r[2])), int(uint32(r[4]))
	k.Spent += n / priceOfWord
	if at+n > k.end {
		p.Reg[0] = failed
		return
	}
	memory, frame := k.Memory(r[3], n), k.frame[at:at+n]
	if load {
		copy(memory, frame)
	} else {
		copy(frame, memory)
	}
}

// checksum is bpf_csum_diff: the seed, less the words that go, with the words that come.
func (k *Kernel) checksum(r [11]uint64) uint64 {
	sum := r[5] & 0xffffffff
	words := func(at, size uint64, flip uint64) {
		if size == 0 {
			return
		}
		b := k.Memory(at, int(size))
		for i := 0; i+1 < len(b); i += 2 {
			sum += Read(b[i:i+2]) ^ flip
		}
	}
	words(r[1], r[2], 0xffff)
	words(r[3], r[4], 0)
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	return sum
}
