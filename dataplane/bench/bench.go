// Package bench runs the LB's or the agent's programs, or a floor below them, many times in
// the kernel (bpf/bench/bench.bpf.c), so that the cost of a packet can be measured.
package bench

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"golang.org/x/sys/unix"

	"proffer/dataplane"
	"proffer/dataplane/lb"
	"proffer/dataplane/objects"
	"proffer/topo"
)

// Bench runs a program many times in the kernel, on frames of changing flows: the
// program stands in the middle of bpf/bench/bench.bpf.c's, which writes the next flow
// into the frame and undoes the program's changes.
type Bench struct {
	spec  *ebpf.CollectionSpec // of the outer program
	prog  *ebpf.Program        // the outer one around the program under test
	lanes *ebpf.Map
	tags  *ebpf.Map
}

// Step is one kind of the packets of a connection.
type Step struct {
	Frame   []byte // at least 160 bytes
	Address int    // where the last 16 bits of the client's address are
	Port    int    // where the client's port is
	Times   int    // how many of them follow each other; 0: one
	Ahead   int    // of so many connections that began later than the last step's
}

// Drill describes the frames that a program gets.
type Drill struct {
	Step           // the only one, or the first
	After   []Step // the others of a connection, with frames of the same length; each connection is another flow
	Changed int    // bytes at a frame's begin that the program changes, at most 160

	Flows uint32 // random among so many from First on; 0: one after another
	First uint32

	Tag  int      // where the tag is, or 0
	Tags []uint64 // of the flows from First on, as they stand in memory

	OpensEvery int    // of so many packets one is a SYN of the next new flow; 0: none
	Opened     uint32 // the first of those
	Flags      int    // where TCP's flags are

	Once bool // a run of the kernel's for each: the program's changes cannot be undone
}

// Run is the result of one run.
type Run struct {
	Took     time.Duration // a packet, the outer program included; in whole ns
	Packets  uint64
	Verdicts [8]uint64

	Statistics bool // the kernel kept statistics meanwhile: two reads of a clock a packet
}

// A frame's length: BLOCKS * BLOCK of bench.bpf.c, and where within looks.
const benchSmallest, benchLargest = 160, 256

// newBench makes the maps of the outer program, which runs on no program yet.
func newBench(tags int) (*Bench, error) {
	spec, err := objects.LoadBench()
	if err != nil {
		return nil, fmt.Errorf("read the bench programs: %w", err)
	}
	cpus, err := ebpf.PossibleCPU()
	if err != nil {
		return nil, fmt.Errorf("count the CPUs: %w", err)
	}
	spec.Maps[objects.BenchMapLanes].MaxEntries = uint32(cpus)
	spec.Maps[objects.BenchMapTags].MaxEntries = uint32(max(tags, 1))
	b := &Bench{spec: spec}
	if b.lanes, err = ebpf.NewMap(spec.Maps[objects.BenchMapLanes]); err != nil {
		return nil, fmt.Errorf("make the bench: %w", err)
	}
	if b.tags, err = ebpf.NewMap(spec.Maps[objects.BenchMapTags]); err != nil {
		return nil, errors.Join(fmt.Errorf("make the bench: %w", err), b.Close())
	}
	return b, nil
}

// surround links the outer program around p, in the target's place, and beside it the programs
// for signals and for new flows of clients. Their code stays as it is.
func (b *Bench) surround(p, signals, kept *ebpf.ProgramSpec) error {
	outer := b.spec.Programs[objects.BenchProgAround]
	if p.Type == ebpf.SchedCLS {
		outer = b.spec.Programs[objects.BenchProgAroundOut]
	}
	own := p.Instructions.Name()
	targets := map[string]string{"target": own, "target_out": own, "target_signal": signals.Instructions.Name(), "target_kept": kept.Instructions.Name()}
	var main asm.Instructions
	for _, in := range outer.Instructions {
		if targets[in.Symbol()] != "" {
			break
		}
		if in.IsFunctionCall() {
			in = in.WithReference(targets[in.Reference()])
		}
		main = append(main, in)
	}
	for name, m := range map[string]*ebpf.Map{objects.BenchMapLanes: b.lanes, objects.BenchMapTags: b.tags} {
		if err := main.AssociateMap(name, m); err != nil {
			return fmt.Errorf("link the bench: %w", err)
		}
	}
	for _, more := range []*ebpf.ProgramSpec{p, signals, kept} {
		main = append(main, without(more.Instructions, main)...)
	}
	p.Instructions = main
	return nil
}

// without leaves out the functions that others have, too.
func without(functions, others asm.Instructions) (rest asm.Instructions) {
	known := map[string]bool{}
	for _, in := range others {
		known[in.Symbol()] = true
	}
	var symbol string
	for _, in := range functions {
		if in.Symbol() != "" {
			symbol = in.Symbol()
		}
		if !known[symbol] {
			rest = append(rest, in)
		}
	}
	return rest
}

// Close frees the bench's resources.
func (b *Bench) Close() error { return errors.Join(b.lanes.Close(), b.tags.Close()) }

// Run passes packets through the program, on the CPU where the calling thread is
// pinned.
func (b *Bench) Run(cpu, packets int, d *Drill) (r Run, err error) {
	var pinned unix.CPUSet
	if err := unix.SchedGetaffinity(0, &pinned); err != nil || pinned.Count() != 1 || !pinned.IsSet(cpu) {
		return r, fmt.Errorf("run the bench: the thread is not pinned to CPU %d (%v)", cpu, err)
	}
	if err := b.prepare(cpu, d); err != nil {
		return r, err
	}
	if err := uninterrupted(func() error { return b.both(packets, d, &r) }); err != nil {
		return r, fmt.Errorf("run the bench: %w", err)
	}
	var lane objects.BenchLane
	if err := b.lanes.Lookup(uint32(cpu), &lane); err != nil {
		return r, fmt.Errorf("read the bench: %w", err)
	}
	if lane.Damaged > 0 {
		return r, fmt.Errorf("run the bench: %d of %d frames could not be restored", lane.Damaged, lane.Packets)
	}
	if lane.Packets != uint64(packets) {
		return r, fmt.Errorf("run the bench: the program had %d packets on CPU %d, not %d", lane.Packets, cpu, packets)
	}
	r.Packets, r.Verdicts = lane.Packets, lane.Verdict
	return r, nil
}

// uninterrupted runs f while no signal reaches the thread, which is locked: after a
// signal the kernel begins a run again, with packets that went before.
func uninterrupted(f func() error) (err error) {
	all, was := unix.Sigset_t{}, unix.Sigset_t{}
	for i := range all.Val {
		all.Val[i]--
	}
	if err := unix.PthreadSigmask(unix.SIG_SETMASK, &all, &was); err != nil {
		return fmt.Errorf("hold signals back: %w", err)
	}
	defer func() { err = errors.Join(err, unix.PthreadSigmask(unix.SIG_SETMASK, &was, nil)) }()
	return f()
}

// both passes the packets that are only checked, then the packets that are timed.
func (b *Bench) both(packets int, d *Drill, r *Run) error {
	if err := b.tryUndo(min(packets, benchTried), d); err != nil {
		return err
	}
	before, err := b.counted()
	if err != nil {
		return err
	}
	if r.Took, err = b.pass(packets-benchTried, d); err != nil {
		return err
	}
	after, err := b.counted()
	r.Statistics = after != before
	return err
}

// counted is the number of the program's runs in the kernel's statistics.
func (b *Bench) counted() (uint64, error) {
	stats, err := b.prog.Stats()
	if err != nil {
		return 0, fmt.Errorf("ask whether the kernel keeps statistics: %w", err)
	}
	return stats.RunCount, nil
}

// benchTried is the number of packets of a run that are checked and not timed.
const benchTried = 2

// tryUndo passes the first packets and demands that the frame is then as it was, except
// the bytes of its flow.
func (b *Bench) tryUndo(packets int, d *Drill) error {
	out := make([]byte, len(d.Frame)+256)
	run := ebpf.RunOptions{Data: d.Frame, DataOut: out, Repeat: uint32(packets)}
	if _, err := b.prog.Run(&run); err != nil || d.Once {
		return err
	}
	next := d.after(packets)
	want := slices.Clone(next.Frame)
	for _, part := range [][2]int{{next.Address, 2}, {next.Port, 2}, {d.Tag, 8}, {d.Flags, 1}} {
		if at := part[0]; at > 0 {
			copy(want[at:at+part[1]], run.DataOut[at:])
		}
	}
	if !bytes.Equal(run.DataOut, want) {
		return fmt.Errorf("the frame was %x and came back as %x: more of it changed than %d bytes", want, run.DataOut, d.Changed)
	}
	return nil
}

// Packets is how many packets a connection has, or 1.
func (d *Drill) Packets() (n int) {
	for _, s := range d.steps() {
		n += max(s.Times, 1)
	}
	return n
}

func (d *Drill) steps() []Step { return append([]Step{d.Step}, d.After...) }

// after is the step of the packet that follows so many.
func (d *Drill) after(packets int) Step {
	packets %= d.Packets()
	for _, s := range d.steps() {
		if packets -= max(s.Times, 1); packets < 0 {
			return s
		}
	}
	return d.Step
}

// pass returns the time of a packet.
func (b *Bench) pass(packets int, d *Drill) (took time.Duration, err error) {
	if packets <= 0 {
		return 0, nil
	}
	if !d.Once {
		_, took, err = b.prog.Benchmark(d.after(benchTried).Frame, packets, nil)
		return took, err
	}
	for range packets {
		_, one, err := b.prog.Benchmark(d.Frame, 1, nil)
		if err != nil {
			return 0, err
		}
		took += one
	}
	return took / time.Duration(packets), nil
}

// prepare gives a CPU's lane its task.
func (b *Bench) prepare(cpu int, d *Drill) error {
	lane := objects.BenchLane{
		Flows:      d.Flows,
		First:      d.First,
		Length:     uint32(len(d.Frame)),
		Blocks:     uint32(d.Changed+31) / 32,
		TagAt:      uint32(d.Tag),
		OpensEvery: uint32(d.OpensEvery),
		FlagsAt:    uint32(d.Flags),
		Opened:     d.Opened,
		Seed:       rand.Uint64(),
	}
	for _, s := range d.steps() {
		if int(lane.Steps) == len(lane.Step) || len(s.Frame) != len(d.Frame) {
			return fmt.Errorf("prepare the bench: step %d has a frame of %d bytes; want %d steps at most, of %d bytes", lane.Steps+1, len(s.Frame), len(lane.Step), len(d.Frame))
		}
		if len(s.Frame) < benchSmallest || len(s.Frame) > benchLargest || d.Changed > benchSmallest {
			return fmt.Errorf("prepare the bench: a frame of %d bytes of which %d change", len(s.Frame), d.Changed)
		}
		to := &lane.Step[lane.Steps]
		to.AddressAt, to.PortAt, to.Times, to.Ahead = uint32(s.Address), uint32(s.Port), uint32(max(s.Times, 1)), uint32(s.Ahead)
		copy(to.Frame[:], s.Frame)
		lane.Steps++
	}
	if lane.Left = lane.Step[0].Times; lane.Steps > 1 {
		lane.Blocks = benchSmallest / 32
	}
	if err := b.lanes.Put(uint32(cpu), lane); err != nil {
		return fmt.Errorf("prepare the bench: %w", err)
	}
	if len(d.Tags) == 0 {
		return nil
	}
	keys := make([]uint32, len(d.Tags))
	for i := range keys {
		keys[i] = uint32(i)
	}
	if _, err := b.tags.BatchUpdate(keys, d.Tags, nil); err != nil {
		return fmt.Errorf("prepare the bench: %d tags: %w", len(d.Tags), err)
	}
	return nil
}

// LB is an LB with its program in a bench instead of on a link.
type LB struct {
	*lb.LB
	*Bench
	cfg *topo.LB
}

// Verified reports the verifier's work on the programs that ship: in the bench, lb contains
// the programs that it otherwise makes tail calls to.
func (b *LB) Verified() ([]dataplane.Verified, error) {
	shipped, err := lb.New(b.cfg)
	if err != nil {
		return nil, err
	}
	all, err := shipped.Verified()
	return all, errors.Join(err, shipped.Close())
}

// asOnNIC makes packets leave by XDP_TX: the bench's link is a veth, to which count.h
// would redirect them. None is too many.
func asOnNIC(spec *ebpf.CollectionSpec) error {
	return errors.Join(spec.Variables["redirect_to"].Set(uint32(0)), spec.Variables["unlimited"].Set(true))
}

// NewLB loads the LB of cfg as NewLB does, with room for so many tags.
func NewLB(cfg *topo.LB, tags int) (*LB, error) {
	b, err := newBench(tags)
	if err != nil {
		return nil, err
	}
	l, err := lb.NewWith(cfg, func(spec *ebpf.CollectionSpec) error {
		return errors.Join(asOnNIC(spec), spec.Variables["without_tail_calls"].Set(true),
			b.surround(spec.Programs[objects.LBProgLb], spec.Programs[objects.LBProgLbSignal], spec.Programs[objects.LBProgLbKept]))
	})
	if err != nil {
		return nil, errors.Join(err, b.Close())
	}
	b.prog = l.Objects().Lb
	return &LB{l, b, cfg}, nil
}

// Close frees both.
func (b *LB) Close() error { return errors.Join(b.LB.Close(), b.Bench.Close()) }

// Memory is the number of bytes that the kernel holds for the program's tables.
func (b *Bench) Memory() (bytes uint64, err error) {
	info, err := b.prog.Info()
	if err != nil {
		return 0, fmt.Errorf("ask for the program's tables: %w", err)
	}
	ids, _ := info.MapIDs()
	for _, id := range ids {
		m, err := ebpf.NewMapFromID(id)
		if err != nil {
			return 0, fmt.Errorf("ask for the program's tables: %w", err)
		}
		info, err := m.Info()
		m.Close()
		if err != nil {
			return 0, fmt.Errorf("ask for the program's tables: %w", err)
		}
		held, _ := info.Memlock()
		bytes += held
	}
	return bytes, nil
}
