package testbed

import (
	"os"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The router's few filters are some instructions each. They need no compiler
// and no loader; the daemons' programs are another package's affair.

// instruction is struct bpf_insn of linux/bpf.h on a little-endian machine.
type instruction struct {
	code      uint8
	registers uint8 // target in the low half, source in the high one
	offset    int16
	constant  int32
}

// Registers: a call returns in r0; r1 is the context on entry, r1 to r5 do not
// survive a call.
const (
	r0 = iota
	r1
	r2
	r3
	r4
	r5
	r6
)

// assembly is a program being written; jumps are to labels further on.
type assembly struct {
	code   []instruction
	labels map[string]int // the instruction that each stands before
	jumps  map[int]string // the instruction that jumps, and where to
}

func newAssembly() *assembly {
	return &assembly{labels: map[string]int{}, jumps: map[int]string{}}
}

func (a *assembly) add(code int, target, source uint8, offset int16, constant int32) {
	a.code = append(a.code, instruction{uint8(code), source<<4 | target, offset, constant})
}

// set is r = constant, and move is r = source.
func (a *assembly) set(target uint8, constant int32) {
	a.add(unix.BPF_ALU64|unix.BPF_MOV|unix.BPF_K, target, 0, 0, constant)
}
func (a *assembly) move(target, source uint8) {
	a.add(unix.BPF_ALU64|unix.BPF_MOV|unix.BPF_X, target, source, 0, 0)
}

// plus is r += constant, and sum is r += source.
func (a *assembly) plus(target uint8, constant int32) {
	a.add(unix.BPF_ALU64|unix.BPF_ADD|unix.BPF_K, target, 0, 0, constant)
}
func (a *assembly) sum(target, source uint8) {
	a.add(unix.BPF_ALU64|unix.BPF_ADD|unix.BPF_X, target, source, 0, 0)
}

// read is r = memory at source + offset; size is unix.BPF_B, BPF_H or BPF_W.
func (a *assembly) read(size int, target, source uint8, offset int16) {
	a.add(unix.BPF_LDX|unix.BPF_MEM|size, target, source, offset, 0)
}

// count adds one to the 64 bits at target + offset, atomically.
func (a *assembly) count(target uint8, offset int16) {
	a.set(r1, 1)
	a.add(unix.BPF_STX|unix.BPF_ATOMIC|unix.BPF_DW, target, r1, offset, unix.BPF_ADD)
}

// jump compares with a constant, and compare with a register.
func (a *assembly) jump(condition int, target uint8, constant int32, to string) {
	a.jumps[len(a.code)] = to
	a.add(unix.BPF_JMP|unix.BPF_K|condition, target, 0, 0, constant)
}
func (a *assembly) compare(condition int, target, source uint8, to string) {
	a.jumps[len(a.code)] = to
	a.add(unix.BPF_JMP|unix.BPF_X|condition, target, source, 0, 0)
}

func (a *assembly) label(name string) { a.labels[name] = len(a.code) }

// leave returns a constant from the program.
func (a *assembly) leave(value int32) {
	a.set(r0, value)
	a.add(unix.BPF_JMP|unix.BPF_EXIT, 0, 0, 0, 0)
}

// load gives the program to the kernel, which checks it.
func (a *assembly) load(kind uint32, name string) (*os.File, error) {
	for at, to := range a.jumps {
		a.code[at].offset = int16(a.labels[to] - at - 1)
	}
	license := []byte("GPL\x00")
	flags := uint32(0)
	if kind == unix.BPF_PROG_TYPE_XDP {
		flags = unix.BPF_F_XDP_HAS_FRAGS // links may have an MTU of 9000
	}
	attributes := struct { // union bpf_attr for BPF_PROG_LOAD, its beginning
		kind, instructions uint32
		program            *instruction
		license            *byte
		_                  [2]uint32 // log_level, log_size
		_                  uint64    // log_buf
		_, flags           uint32    // kern_version
	}{kind: kind, instructions: uint32(len(a.code)), program: &a.code[0], license: &license[0], flags: flags}
	f, err := bpf(unix.BPF_PROG_LOAD, unsafe.Pointer(&attributes), unsafe.Sizeof(attributes), name)
	runtime.KeepAlive(&attributes)
	return f, wrap("load BPF program "+name, err)
}

// bpf is bpf(2) for the commands that return a descriptor. The verifier gives
// up with EAGAIN when a signal comes, as Go's runtime sends to its threads.
func bpf(command uintptr, attributes unsafe.Pointer, size uintptr, name string) (*os.File, error) {
	const tries = 30
	fd, errno := uintptr(0), unix.EAGAIN
	for i := 0; i < tries && errno == unix.EAGAIN; i++ {
		fd, _, errno = unix.Syscall(unix.SYS_BPF, command, uintptr(attributes), size)
	}
	if errno != 0 {
		return nil, errno
	}
	unix.CloseOnExec(int(fd))
	return os.NewFile(fd, name), nil
}

// newArray makes a BPF array of one value, which the caller may map.
func newArray(size uint32) (*os.File, error) {
	attributes := struct { // union bpf_attr for BPF_MAP_CREATE, its beginning
		kind, key, value, entries, flags uint32
	}{unix.BPF_MAP_TYPE_ARRAY, 4, size, 1, unix.BPF_F_MMAPABLE}
	f, err := bpf(unix.BPF_MAP_CREATE, unsafe.Pointer(&attributes), unsafe.Sizeof(attributes), "array")
	runtime.KeepAlive(&attributes)
	return f, wrap("make BPF map", err)
}

// point is r = where the one value of an array is.
func (a *assembly) point(target uint8, array *os.File) {
	a.add(unix.BPF_LD|unix.BPF_IMM|unix.BPF_DW, target, unix.BPF_PSEUDO_MAP_VALUE, 0, int32(array.Fd()))
	a.add(0, 0, 0, 0, 0) // the upper half: offset 0
}
