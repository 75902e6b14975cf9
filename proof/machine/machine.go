// Package machine runs compiled programs in Go, one instruction at a time: for tests that
// choose the next CPU, or that count instructions. The verifier has accepted the programs, so
// their accesses are not checked again; an instruction or helper that none of them has panics.
package machine

import (
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
)

// Code is functions of compiled programs.
type Code struct {
	ins   []Instruction
	entry map[string]int
	frame uint64 // bytes of stack a call
}

// Instruction is one of the machine's.
type Instruction struct {
	asm.Instruction
	Imm uint64 // of an LdImmDW that names a map or a function, its address
	to  int    // where a jump or a call goes
}

// CPU is a value, so that a copy is all of its state but the stack's bytes.
type CPU struct {
	Reg   [11]uint64
	PC    int
	Depth int // of calls
	back  [Calls]struct {
		pc   int
		kept [4]uint64 // r6 to r9
	}
}

// Calls is the depth of calls that a CPU has room for.
const Calls = 8

// CodeAt is the address of the functions, as callbacks are named.
const CodeAt = 1 << 40

// World is the memory and the helpers of a CPU.
type World interface {
	// Memory returns the bytes at an address.
	Memory(at uint64, size int) []byte
	// Help does a call of a helper: arguments in r1 to r5, its result in r0.
	Help(c *Code, helper asm.BuiltinFunc, p *CPU)
}

// New takes programs apart, for calls with so many bytes of stack each. address gives that of
// the map, or of the map's value, that an LdImmDW names.
func New(programs []*ebpf.ProgramSpec, frame int, address func(asm.Instruction) uint64) *Code {
	c := &Code{entry: map[string]int{}, frame: uint64(frame)}
	at, raw := map[int]int{}, 0 // a jump counts LdImmDW as two
	for _, program := range programs {
		for _, ins := range program.Instructions {
			if ins.Symbol() != "" {
				c.entry[ins.Symbol()] = len(c.ins)
			}
			at[raw] = len(c.ins)
			raw += int(ins.Size() / asm.InstructionSize)
			c.ins = append(c.ins, Instruction{Instruction: ins, Imm: uint64(ins.Constant)})
		}
	}
	raw = 0
	for i := range c.ins {
		ins := &c.ins[i]
		raw += int(ins.Size() / asm.InstructionSize)
		switch {
		case ins.IsFunctionCall():
			ins.to = c.entry[ins.Reference()]
		case ins.IsLoadOfFunctionPointer():
			ins.Imm = CodeAt + uint64(c.entry[ins.Reference()])
		case ins.IsLoadFromMap():
			ins.Imm = address(ins.Instruction)
		case ins.OpCode.Class().IsJump():
			ins.to = at[raw+int(ins.Offset)]
		}
	}
	return c
}

// Call begins a function with its stack from an address on.
func (c *Code) Call(function string, stack uint64, args ...uint64) (p CPU) {
	at, ok := c.entry[function]
	if !ok {
		panic("no function " + function)
	}
	return c.CallAt(CodeAt+uint64(at), stack, args...)
}

// CallAt is Call of the function at an address.
func (c *Code) CallAt(function, stack uint64, args ...uint64) (p CPU) {
	p.PC = int(function - CodeAt)
	copy(p.Reg[1:], args)
	p.Reg[10] = stack + c.frame
	return p
}

// Next is the instruction that Step would run.
func (c *Code) Next(p *CPU) *Instruction { return &c.ins[p.PC] }

// Touches reports whether the instruction reads or writes memory from that address on.
func (ins *Instruction) Touches(p *CPU, from, to uint64) bool {
	at := p.Reg[ins.Dst]
	switch ins.OpCode.Class() {
	case asm.LdXClass:
		at = p.Reg[ins.Src]
	case asm.StClass, asm.StXClass:
	default:
		return false
	}
	return from <= at && at < to
}

// Exits reports whether the instruction returns from a function.
func (ins *Instruction) Exits() bool {
	return ins.OpCode.Class().IsJump() && ins.OpCode.JumpOp() == asm.Exit
}

// Step runs one instruction. False: the first function has returned.
func (c *Code) Step(p *CPU, w World) bool {
	ins := &c.ins[p.PC]
	p.PC++
	switch class := ins.OpCode.Class(); class {
	case asm.ALUClass, asm.ALU64Class:
		p.Reg[ins.Dst] = alu(ins, class == asm.ALU64Class, p.Reg[ins.Dst], p.source(ins))
	case asm.LdClass:
		p.Reg[ins.Dst] = ins.Imm
	case asm.LdXClass, asm.StClass, asm.StXClass:
		c.memory(ins, p, w)
	default:
		return c.jump(ins, p, w)
	}
	return true
}

func (p *CPU) source(ins *Instruction) uint64 {
	if ins.OpCode.Source() == asm.RegSource {
		return p.Reg[ins.Src]
	}
	return ins.Imm
}

// jump does jumps, calls and exits.
func (c *Code) jump(ins *Instruction, p *CPU, w World) bool {
	switch op := ins.OpCode.JumpOp(); {
	case op == asm.Exit:
		return c.exit(p)
	case ins.IsFunctionCall():
		copy(p.back[p.Depth].kept[:], p.Reg[6:10])
		p.back[p.Depth].pc = p.PC
		p.Depth++
		p.Reg[10] += c.frame
		p.PC = ins.to
	case op == asm.Call:
		w.Help(c, asm.BuiltinFunc(ins.Constant), p)
	case taken(ins, p):
		p.PC = ins.to
	}
	return true
}

// exit clears the registers that a caller may not read, so that equal states look equal.
func (c *Code) exit(p *CPU) bool {
	clear(p.Reg[1:6])
	if p.Depth == 0 {
		clear(p.Reg[6:10])
		return false
	}
	p.Depth--
	back := &p.back[p.Depth]
	copy(p.Reg[6:10], back.kept[:])
	p.PC = back.pc
	clear(back.kept[:])
	back.pc = 0
	p.Reg[10] -= c.frame
	return true
}

// memory does one load, store, exchange, or exchange if equal.
func (c *Code) memory(ins *Instruction, p *CPU, w World) {
	base := ins.Dst
	if ins.OpCode.Class() == asm.LdXClass {
		base = ins.Src
	}
	if base == asm.RFP && ins.Offset < -int16(c.frame) {
		panic(fmt.Sprintf("%v: more stack than %d bytes", ins, c.frame))
	}
	at := w.Memory(p.Reg[base]+uint64(ins.Offset), ins.OpCode.Size().Sizeof())
	was := Read(at)
	switch atomic := ins.OpCode.AtomicOp(); {
	case ins.OpCode.Class() == asm.LdXClass && ins.OpCode.Mode() == asm.MemSXMode:
		p.Reg[ins.Dst] = extended(was, len(at))
	case ins.OpCode.Class() == asm.LdXClass:
		p.Reg[ins.Dst] = was
	case ins.OpCode.Class() == asm.StClass:
		Write(at, ins.Imm)
	case ins.OpCode.Mode() == asm.MemMode:
		Write(at, p.Reg[ins.Src])
	default:
		c.atomic(ins, atomic, p, at, was)
	}
}

func (c *Code) atomic(ins *Instruction, op asm.AtomicOp, p *CPU, at []byte, was uint64) {
	with := p.Reg[ins.Src]
	switch op {
	case asm.AddAtomic:
		Write(at, was+with)
		return
	case asm.AndAtomic:
		Write(at, was&with)
		return
	case asm.OrAtomic:
		Write(at, was|with)
		return
	case asm.XorAtomic:
		Write(at, was^with)
		return
	case asm.CmpXchg:
		if was == p.Reg[0] {
			Write(at, with)
		}
		p.Reg[0] = was
		return
	case asm.Xchg:
		Write(at, with)
	case asm.FetchAdd:
		Write(at, was+with)
	case asm.FetchAnd:
		Write(at, was&with)
	case asm.FetchOr:
		Write(at, was|with)
	case asm.FetchXor:
		Write(at, was^with)
	default:
		panic(fmt.Sprintf("%v: not known here", ins))
	}
	p.Reg[ins.Src] = was
}

// Read and Write are a number in memory, little-endian.
func Read(from []byte) (v uint64) {
	for i, b := range from {
		v |= uint64(b) << (8 * i)
	}
	return v
}

func Write(to []byte, v uint64) {
	for i := range to {
		to[i] = byte(v >> (8 * i))
	}
}

func extended(v uint64, bytes int) uint64 {
	shift := 64 - 8*bytes
	return uint64(int64(v<<shift) >> shift)
}
