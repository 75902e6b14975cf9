package machine

import (
	"fmt"
	"math/bits"

	"github.com/cilium/ebpf/asm"
)

func alu(ins *Instruction, wide bool, a, b uint64) uint64 {
	mask := uint64(63)
	if !wide {
		a, b, mask = uint64(uint32(a)), uint64(uint32(b)), 31
	}
	switch op := ins.OpCode.ALUOp(); op {
	case asm.Add:
		a += b
	case asm.Sub:
		a -= b
	case asm.Mul:
		a *= b
	case asm.Div:
		a = divided(a, b)
	case asm.Mod:
		if b != 0 {
			a %= b
		}
	case asm.Or:
		a |= b
	case asm.And:
		a &= b
	case asm.Xor:
		a ^= b
	case asm.LSh:
		a <<= b & mask
	case asm.RSh:
		a >>= b & mask
	case asm.ArSh:
		if wide {
			a = uint64(int64(a) >> (b & mask))
		} else {
			a = uint64(int32(a) >> (b & mask))
		}
	case asm.Neg:
		a = -a
	case asm.Mov:
		a = b
	case asm.Swap:
		a = swapped(ins, a)
	default:
		panic(fmt.Sprintf("%v: not known here", ins))
	}
	if !wide && ins.OpCode.ALUOp() != asm.Swap {
		a = uint64(uint32(a))
	}
	return a
}

// divided: a division by 0 is 0.
func divided(a, b uint64) uint64 {
	if b == 0 {
		return 0
	}
	return a / b
}

// swapped turns the machine's byte order into the network's, or back.
func swapped(ins *Instruction, a uint64) uint64 {
	little := ins.OpCode.Endianness() == asm.LE
	switch ins.Constant {
	case 16:
		if little {
			return uint64(uint16(a))
		}
		return uint64(bits.ReverseBytes16(uint16(a)))
	case 32:
		if little {
			return uint64(uint32(a))
		}
		return uint64(bits.ReverseBytes32(uint32(a)))
	}
	if little {
		return a
	}
	return bits.ReverseBytes64(a)
}

func taken(ins *Instruction, p *CPU) bool {
	a, b := p.Reg[ins.Dst], p.source(ins)
	sa, sb := int64(a), int64(b)
	if ins.OpCode.Class() == asm.Jump32Class {
		a, b = uint64(uint32(a)), uint64(uint32(b))
		sa, sb = int64(int32(a)), int64(int32(b))
	}
	switch op := ins.OpCode.JumpOp(); op {
	case asm.Ja:
		return true
	case asm.JEq:
		return a == b
	case asm.JNE:
		return a != b
	case asm.JGT:
		return a > b
	case asm.JGE:
		return a >= b
	case asm.JLT:
		return a < b
	case asm.JLE:
		return a <= b
	case asm.JSet:
		return a&b != 0
	case asm.JSGT:
		return sa > sb
	case asm.JSGE:
		return sa >= sb
	case asm.JSLT:
		return sa < sb
	case asm.JSLE:
		return sa <= sb
	default:
		panic(fmt.Sprintf("%v: not known here", ins))
	}
}
