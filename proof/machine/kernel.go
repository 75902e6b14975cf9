package machine

import (
	"errors"
	"fmt"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
)

// Kernel is the world of whole XDP programs: a frame, and the maps of loaded programs. A map's
// value is read once from the kernel; then this world has its own.
type Kernel struct {
	Spent    int // instructions, with the price of helpers
	code     *Code
	programs []string // that a packet may go on to
	maps     []*table
	values   [][]byte
	frame    []byte // with its headroom
	data     int
	end      int
	ctx      [24]byte // struct xdp_md
	stack    [stackBytes]byte
}

// table is a map: its values by key.
type table struct {
	*ebpf.Map
	known map[string]uint64 // addresses
}

// The address space. A frame's addresses have 32 bits, as struct xdp_md has for them.
const (
	atFrame  = 1 << 16
	atCtx    = 1 << 32
	atStack  = 2 << 32
	atMaps   = 3 << 32
	atValues = 1 << 48 // and 2^32 each
)

const (
	headroom   = 256 // XDP_PACKET_HEADROOM
	frameBytes = 512 // MAX_BPF_STACK
	stackBytes = 2 * Calls * frameBytes
)

// The price of a helper is in instructions, some 20 ns: a hash table's look-up takes as
// long. A helper that moves bytes takes one more a word.
const (
	priceOfHelp = 50
	priceOfWord = 8 // bytes
)

// NewKernel is the world of loaded programs and their specifications; the programs that
// `programs` names are those a packet may go on to.
func NewKernel(spec *ebpf.CollectionSpec, loaded map[string]*ebpf.Program) (*Kernel, error) {
	k := &Kernel{}
	if m := spec.Maps["programs"]; m != nil {
		for _, c := range m.Contents {
			k.programs = append(k.programs, c.Value.(string))
		}
	}
	have := map[string]*ebpf.Map{}
	var specs []*ebpf.ProgramSpec
	for name, program := range loaded {
		specs = append(specs, spec.Programs[name])
		if err := mapsOf(program, have); err != nil {
			return nil, fmt.Errorf("maps of %s: %w", name, err)
		}
	}
	var missing error
	numbers := map[string]uint64{}
	k.code = New(specs, frameBytes, func(ins asm.Instruction) uint64 {
		name := ins.Reference()
		number, met := numbers[name]
		if !met {
			m := have[name[:min(len(name), nameBytes)]]
			if m == nil {
				missing = errors.Join(missing, fmt.Errorf("no map %q", name))
			}
			number = k.add(m)
			numbers[name] = number
		}
		if !ins.IsLoadFromMap() || ins.Src != asm.PseudoMapValue {
			return number
		}
		at := k.lookup(k.maps[number-atMaps], make([]byte, 4))
		return at + uint64(ins.Constant)>>32
	})
	return k, missing
}

// nameBytes is how much of a map's name the kernel keeps.
const nameBytes = 15

// mapsOf adds the maps of a loaded program by their names. Sections have the object's
// name before theirs.
func mapsOf(program *ebpf.Program, have map[string]*ebpf.Map) error {
	about, err := program.Info()
	if err != nil {
		return err
	}
	ids, _ := about.MapIDs()
	for _, id := range ids {
		m, err := ebpf.NewMapFromID(id)
		if err != nil {
			return err
		}
		about, err := m.Info()
		if err != nil {
			return err
		}
		name := about.Name
		if dot := strings.IndexByte(name, '.'); dot > 0 {
			name = name[dot:]
		}
		if was := have[name]; was != nil {
			was.Close()
		}
		have[name] = m
	}
	return nil
}

func (k *Kernel) add(m *ebpf.Map) uint64 {
	k.maps = append(k.maps, &table{m, map[string]uint64{}})
	return atMaps + uint64(len(k.maps)-1)
}

// Close closes the maps.
func (k *Kernel) Close() {
	for _, m := range k.maps {
		m.Close()
	}
}

// Run passes a frame through a program, and returns its verdict and the frame that is left.
func (k *Kernel) Run(program string, frame []byte) (action uint32, left []byte) {
	k.frame = append(append(k.frame[:0], make([]byte, headroom)...), frame...)
	k.data, k.end, k.Spent = headroom, headroom+len(frame), 0
	action = uint32(k.call(k.code.Call(program, atStack, atCtx)))
	return action, append([]byte(nil), k.frame[k.data:k.end]...)
}

// call runs a function to its end.
func (k *Kernel) call(p CPU) uint64 {
	for k.code.Step(&p, k) {
		k.Spent++
	}
	return p.Reg[0]
}

// Memory returns the bytes at an address. The context is made as it is read.
func (k *Kernel) Memory(at uint64, size int) []byte {
	offset := at & 0xffffffff
	switch {
	case at < atCtx:
		offset -= atFrame
		if int(offset) < k.data || int(offset)+size > k.end {
			panic(fmt.Sprintf("%d bytes at %d of a frame from %d to %d", size, offset, k.data, k.end))
		}
		return k.frame[offset:][:size]
	case at < atStack:
		Write(k.ctx[0:4], uint64(atFrame+k.data))
		Write(k.ctx[4:8], uint64(atFrame+k.end))
		return k.ctx[offset:][:size]
	case at < atMaps:
		return k.stack[offset:][:size]
	case at < atValues:
		panic(fmt.Sprintf("address %x", at))
	}
	return k.values[at>>32-atValues>>32][offset:][:size]
}

// lookup returns the address of a key's value, or 0. Records a CPU are all zero at first; of an
// array of maps the value is a map.
func (k *Kernel) lookup(m *table, key []byte) uint64 {
	at, known := m.known[string(key)]
	if known {
		return at
	}
	switch m.Type() {
	case ebpf.PerCPUArray:
		at = k.value(make([]byte, m.ValueSize()))
	case ebpf.ArrayOfMaps:
		var inner *ebpf.Map
		if m.Lookup(key, &inner) == nil {
			at = k.add(inner)
		}
	default:
		if value, err := m.LookupBytes(key); err == nil && value != nil {
			at = k.value(value)
		}
	}
	m.known[string(key)] = at
	return at
}

func (k *Kernel) value(b []byte) uint64 {
	k.values = append(k.values, b)
	return atValues + uint64(len(k.values)-1)<<32
}
