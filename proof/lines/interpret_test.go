package lines_test

import (
	"encoding/binary"
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"

	"proffer/dataplane/objects"
)

// code is functions of a compiled program, to be run here one step at a time by CPUs
// that share one table of lines: so a test chooses the next CPU, which it cannot on
// real ones. They share nothing else, and each step ends before the next look at it.
// What one has written all see at once, as on x86; where loads may overtake each
// other this proves less.
type code struct {
	ins    []instruction
	entry  map[string]int
	consts []byte // .rodata
}

// instruction is one of the machine's. An LdImmDW that names a map has its address.
type instruction struct {
	asm.Instruction
	imm uint64
	to  int // where a jump or a call goes
}

// The address space: the upper half of an address is the object, the lower half the offset.
const (
	atStack = (iota + 1) << 32
	atLines
	atConsts
	atVars // .bss: virtual_now_ns
	theMap // flows, as an argument of bpf_map_lookup_elem
)

const (
	fewLines   = 4
	calls      = 5   // deep
	argBytes   = 64  // what a pointer among the arguments points to
	frameBytes = 128 // of stack, a call
)

// shared is the memory of all CPUs.
type shared struct {
	lines [fewLines * objects.LineBytes]byte
	now   uint64
}

// cpu is one of them: a value, so that a copy is all of its state.
type cpu struct {
	reg   [11]uint64
	pc    int
	depth int
	back  [calls]struct {
		pc   int
		kept [4]uint64 // r6 to r9
	}
	stack [argBytes + calls*frameBytes]byte
}

// codeOf takes programs apart, with the constants that have been set.
func codeOf(spec *ebpf.CollectionSpec, programs ...string) *code {
	c := &code{entry: map[string]int{}}
	for _, v := range spec.Variables {
		if v.SectionName == ".rodata" {
			end := int(v.Offset) + len(v.Value)
			c.consts = append(c.consts, make([]byte, max(0, end-len(c.consts)))...)
			copy(c.consts[v.Offset:], v.Value)
		}
	}
	at, raw := map[int]int{}, 0 // a jump counts LdImmDW as two
	for _, program := range programs {
		for _, ins := range spec.Programs[program].Instructions {
			if ins.Symbol() != "" {
				c.entry[ins.Symbol()] = len(c.ins)
			}
			at[raw] = len(c.ins)
			raw += int(ins.Size() / asm.InstructionSize)
			c.ins = append(c.ins, instruction{Instruction: ins, imm: uint64(ins.Constant)})
		}
	}
	raw = 0
	for i := range c.ins {
		ins := &c.ins[i]
		raw += int(ins.Size() / asm.InstructionSize)
		switch {
		case ins.IsFunctionCall():
			ins.to = c.entry[ins.Reference()]
		case ins.OpCode.IsDWordLoad() && ins.Src == asm.PseudoMapFD && ins.Reference() == objects.LBMapFlows:
			ins.imm = theMap
		case ins.OpCode.IsDWordLoad() && ins.Src == asm.PseudoMapValue && ins.Reference() == ".rodata":
			ins.imm = atConsts + uint64(ins.Constant)>>32
		case ins.OpCode.IsDWordLoad() && ins.Src == asm.PseudoMapValue && ins.Reference() == ".bss":
			ins.imm = atVars + uint64(ins.Constant)>>32
		case ins.OpCode.Class().IsJump():
			ins.to = at[raw+int(ins.Offset)]
		}
	}
	return c
}

// call begins a function; its pointers are to the top of the stack.
func (c *code) call(function string, args ...uint64) (p cpu) {
	at, ok := c.entry[function]
	if !ok {
		panic("no function " + function)
	}
	p.pc = at
	copy(p.reg[1:], args)
	p.reg[10] = atStack + argBytes + frameBytes
	return p
}

// step runs p up to its next look at the lines, from one if it stands before it.
// False: it has returned.
func (c *code) step(p *cpu, s *shared) bool {
	for first := true; ; first = false {
		ins := &c.ins[p.pc]
		if !first && ins.touchesLines(p) {
			return true
		}
		p.pc++
		switch class := ins.OpCode.Class(); class {
		case asm.ALUClass, asm.ALU64Class:
			p.reg[ins.Dst] = alu(ins, class == asm.ALU64Class, p.reg[ins.Dst], p.source(ins))
		case asm.LdClass:
			p.reg[ins.Dst] = ins.imm
		case asm.LdXClass, asm.StClass, asm.StXClass:
			c.memory(ins, p, s)
		default:
			if !c.jump(ins, p) {
				return false
			}
		}
	}
}

func (ins *instruction) touchesLines(p *cpu) bool {
	switch ins.OpCode.Class() {
	case asm.LdXClass:
		return p.reg[ins.Src]>>32 == atLines>>32
	case asm.StClass, asm.StXClass:
		return p.reg[ins.Dst]>>32 == atLines>>32
	}
	return false
}

func (p *cpu) source(ins *instruction) uint64 {
	if ins.OpCode.Source() == asm.RegSource {
		return p.reg[ins.Src]
	}
	return ins.imm
}

func alu(ins *instruction, wide bool, a, b uint64) uint64 {
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
	default:
		panic(fmt.Sprintf("%v: not known here", ins))
	}
	if !wide {
		a = uint64(uint32(a))
	}
	return a
}

// jump does jumps, calls and exits.
func (c *code) jump(ins *instruction, p *cpu) bool {
	switch op := ins.OpCode.JumpOp(); {
	case op == asm.Exit:
		return p.exit()
	case ins.IsFunctionCall():
		copy(p.back[p.depth].kept[:], p.reg[6:10])
		p.back[p.depth].pc = p.pc
		p.depth++
		p.reg[10] += frameBytes
		p.pc = ins.to
	case op == asm.Call:
		c.help(ins, p)
	case taken(ins, p):
		p.pc = ins.to
	}
	return true
}

func (p *cpu) exit() bool {
	clear(p.stack[argBytes+p.depth*frameBytes:][:frameBytes]) // so that equal states look equal
	clear(p.reg[1:6])
	if p.depth == 0 {
		clear(p.reg[6:10])
		return false
	}
	p.depth--
	back := &p.back[p.depth]
	copy(p.reg[6:10], back.kept[:])
	p.pc = back.pc
	clear(back.kept[:])
	back.pc = 0
	p.reg[10] -= frameBytes
	return true
}

// help is bpf_map_lookup_elem of a line; they call no other helper.
func (c *code) help(ins *instruction, p *cpu) {
	if asm.BuiltinFunc(ins.Constant) != asm.FnMapLookupElem || p.reg[1] != theMap {
		panic(fmt.Sprintf("%v: not known here", ins))
	}
	key := binary.LittleEndian.Uint32(p.stack[p.reg[2]-atStack:])
	clear(p.reg[:6])
	if key < fewLines {
		p.reg[0] = atLines + uint64(key)*uint64(objects.LineBytes)
	}
}

func taken(ins *instruction, p *cpu) bool {
	a, b := p.reg[ins.Dst], p.source(ins)
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

// memory does one load, store, exchange, or exchange if equal.
func (c *code) memory(ins *instruction, p *cpu, s *shared) {
	size := ins.OpCode.Size().Sizeof()
	base := ins.Dst
	if ins.OpCode.Class() == asm.LdXClass {
		base = ins.Src
	}
	if base == asm.RFP && ins.Offset < -frameBytes {
		panic(fmt.Sprintf("%v: more stack than %d bytes", ins, frameBytes))
	}
	at := c.at(p.reg[base]+uint64(ins.Offset), p, s)[:size]
	was := read(at)
	switch atomic := ins.OpCode.AtomicOp(); {
	case ins.OpCode.Class() == asm.LdXClass:
		p.reg[ins.Dst] = was
	case ins.OpCode.Class() == asm.StClass:
		write(at, ins.imm)
	case ins.OpCode.Mode() == asm.MemMode:
		write(at, p.reg[ins.Src])
	case atomic == asm.Xchg:
		write(at, p.reg[ins.Src])
		p.reg[ins.Src] = was
	case atomic == asm.AddAtomic:
		write(at, was+p.reg[ins.Src])
	case atomic == asm.FetchAnd:
		write(at, was&p.reg[ins.Src])
		p.reg[ins.Src] = was
	case atomic == asm.CmpXchg:
		if was == p.reg[0] {
			write(at, p.reg[ins.Src])
		}
		p.reg[0] = was
	default:
		panic(fmt.Sprintf("%v: not known here", ins))
	}
}

// at returns the bytes from an address on.
func (c *code) at(addr uint64, p *cpu, s *shared) []byte {
	offset := addr & 0xffffffff
	switch addr - offset {
	case atStack:
		return p.stack[offset:]
	case atLines:
		return s.lines[offset:]
	case atConsts:
		return c.consts[offset:]
	case atVars:
		return binary.LittleEndian.AppendUint64(nil, s.now)[offset:]
	}
	panic(fmt.Sprintf("address %x", addr))
}

func read(from []byte) (v uint64) {
	for i, b := range from {
		v |= uint64(b) << (8 * i)
	}
	return v
}

func write(to []byte, v uint64) {
	for i := range to {
		to[i] = byte(v >> (8 * i))
	}
}
