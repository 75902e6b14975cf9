// Package bench measures the cost of a packet: the programs that the daemons attach, over and over in
// the kernel, beside the floors under them.
package bench

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	inkernel "proffer/dataplane/bench"
	"proffer/lab/farmrun"
)

// Bench measures the programs themselves, packet by packet, beside the floors
// under them (docs/evidence/bench.md).
type Bench struct {
	CPU   int            // that measures
	Turns int            // of each row, parts runs each
	Flows []int          // numbers of flows that a table has
	Rows  *regexp.Regexp // which rows; nil: all
}

const (
	packets       = 250_000 // of a turn
	benchMade     = 100_000 // of one that makes entries, and another takes out
	benchOnce     = 20_000  // of one that is a call of the kernel for each packet
	parts         = 4       // short runs of a turn
	mostTurns     = 10_000
	tableEntries  = 1 << 24   // at most (config), of which four fifths are filled
	othersAtMost  = 1_000_000 // known flows of the modes after the first
	insertEntries = 1 << 20   // of the tables in which entries are made
)

// LastCPU is the last one that this process may use: the first often has the
// machine's interrupts.
func LastCPU() (int, error) {
	allowed, err := farmrun.AllowedCPUs()
	if err != nil {
		return 0, err
	}
	return allowed[len(allowed)-1], nil
}

// Check returns an error for settings that cannot be measured.
func (b *Bench) Check() error {
	switch {
	case b.Turns < 1 || b.Turns > mostTurns:
		return fmt.Errorf("--runs %d: want 1 to %d", b.Turns, mostTurns)
	case len(b.Flows) == 0:
		return errors.New("--flows: name at least one number of flows")
	}
	for _, n := range b.Flows {
		if most := tableEntries*4/5 - 2*othersAtMost; n < 1 || n > most {
			return fmt.Errorf("--flows %d: want 1 to %d, as a flow table has at most %d entries, filled to four fifths",
				n, most, tableEntries)
		}
	}
	slices.Sort(b.Flows)
	b.Flows = slices.Compact(b.Flows)
	allowed, err := farmrun.AllowedCPUs()
	if err != nil {
		return err
	}
	if !slices.Contains(allowed, b.CPU) {
		return fmt.Errorf("--cpu %d: this process may use %v only", b.CPU, allowed)
	}
	s := newSession(b)
	if len(s.rows) == 0 {
		return fmt.Errorf("--rows %q matches none; they are named as lb/hunt/steer/1000 is", b.Rows)
	}
	return nil
}

// Run measures, on a thread and in a network namespace of its own, which end with
// it. show gets the progress, and note the remarks for the reader.
func (b *Bench) Run(ctx context.Context, show func(farmrun.Step), note func(string)) (report *Report, err error) {
	s := newSession(b)
	s.show, s.note = show, note
	if s.second < 0 {
		note("this process may use one CPU only: steer-contended is left out")
	}
	err = onCPU(b.CPU, func() (err error) {
		if err := place(); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, s.close()) }()
		if err := s.measure(ctx); err != nil {
			return err
		}
		report = s.report()
		return nil
	})
	return report, err
}

// place moves the thread into a network namespace that has one link, and
// ends with the thread.
func place() error {
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		return fmt.Errorf("make a network namespace: %w", err)
	}
	link := &netlink.Veth{
		LinkAttrs: netlink.LinkAttrs{Name: device, MTU: 1500, HardwareAddr: mac[:]},
		PeerName:  device + "peer",
	}
	if err := netlink.LinkAdd(link); err != nil {
		return fmt.Errorf("add link %s: %w", device, err)
	}
	for _, name := range []string{"lo", device} {
		l, err := netlink.LinkByName(name)
		if err == nil {
			err = netlink.LinkSetUp(l)
		}
		if err != nil {
			return fmt.Errorf("set %s up: %w", name, err)
		}
	}
	return nil
}

// benchRow is one thing that is measured, again and again.
type benchRow struct {
	program, mode, kind string
	flows               int
	packets             int    // that its time is of; 0: one
	floor               string // kind of the floor that it stands on
	beside              int    // flows of that floor; 0: as many as the row has
	loop                string // kind of the bench's own loop around it

	setup    func() error                 // once
	prepare  func() error                 // before each turn, untimed
	pass     func() pass                  // of a turn
	whole    func() (inkernel.Run, error) // a turn that has no parts, instead of pass
	cleanup  func() error                 // after each turn
	readings []timing
}

func (r *benchRow) name() string {
	return fmt.Sprintf("%s/%s/%s/%d", r.program, r.mode, r.kind, r.flows)
}

// session is one call of the bench.
type session struct {
	*Bench
	rows   []*benchRow
	second int // another CPU, or -1
	show   func(farmrun.Step)
	note   func(string)
	open   []io.Closer
	floors *floorBenches
	agent  *agentBench
	edge   *edgeBench
	work   *workBench
	lbs    map[string]*lbBench
}

func newSession(b *Bench) *session {
	s := &session{Bench: b, second: -1, lbs: map[string]*lbBench{}}
	if allowed, err := farmrun.AllowedCPUs(); err == nil {
		for _, cpu := range allowed {
			if cpu != b.CPU {
				s.second = cpu
			}
		}
	}
	s.rows = slices.Concat(s.floorRows(), s.lbRows(), s.agentRows(), s.edgeRows(), s.workRows())
	wanted := map[string]bool{}
	chosen := 0
	for _, r := range s.rows {
		if b.Rows == nil || b.Rows.MatchString(r.name()) {
			wanted[r.name()] = true
			wanted[s.floorOf(r).name()] = true
			wanted[s.loopOf(r).name()] = true
			wanted[s.loopOf(s.floorOf(r)).name()] = true
			chosen++
		}
	}
	if chosen == 0 {
		s.rows = nil
	}
	s.rows = slices.DeleteFunc(s.rows, func(r *benchRow) bool { return !wanted[r.name()] })
	return s
}

// floorOf is the floor under a row: that of as many flows, or else of the next
// more, or of the most.
func (s *session) floorOf(row *benchRow) (floor *benchRow) {
	flows := cmp.Or(row.beside, row.flows)
	for _, r := range s.rows {
		if r.program != "floor" || r.kind != row.floor {
			continue
		}
		if floor == nil || r.flows >= flows && (floor.flows < flows || r.flows < floor.flows) ||
			r.flows < flows && floor.flows < r.flows {
			floor = r
		}
	}
	return floor
}

// loopOf is the bench's own loop around a row.
func (s *session) loopOf(row *benchRow) *benchRow {
	return s.floorOf(&benchRow{floor: cmp.Or(row.loop, "loop"), flows: 1})
}

// measure makes passes over all rows, so that a change of the machine's speed
// meets all rows.
func (s *session) measure(ctx context.Context) error {
	p := farmrun.Pace{Began: time.Now(), Total: len(s.rows) * (s.Turns + 1), Guess: 200 * time.Millisecond, Show: s.show}
	for turn := range s.Turns + 1 {
		for _, row := range s.rows {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			p.Begin(row.name())
			var err error
			if turn == 0 {
				err = call(row.setup)
			} else {
				err = s.turn(row)
			}
			if err != nil {
				return fmt.Errorf("measure %s: %w", row.name(), err)
			}
			p.End(row.name())
		}
		if turn == 0 && len(s.lbs) > 0 {
			s.note(s.memory())
		}
	}
	return nil
}

// turn takes readings of a row: short runs, each beside short runs of its floor and of their
// loops.
func (s *session) turn(row *benchRow) error {
	if err := call(row.prepare); err != nil {
		return err
	}
	if row.whole != nil {
		if err := s.read(row, row.whole); err != nil {
			return err
		}
		return call(row.cleanup)
	}
	p := row.pass()
	for i := range parts {
		part := p.part(i)
		if err := s.read(row, func() (inkernel.Run, error) { return part.run(s.CPU) }); err != nil {
			return err
		}
	}
	return call(row.cleanup)
}

// read takes one reading of a row between those of its neighbours.
func (s *session) read(row *benchRow, measure func() (inkernel.Run, error)) error {
	packets := float64(max(row.packets, 1))
	loop, floor := s.loopOf(row), s.floorOf(row)
	r, err := timed(func() (r timing, err error) {
		if r.loop, err = s.short(loop); err != nil {
			return r, err
		}
		under := r.loop
		if bottom := s.loopOf(floor); bottom != loop {
			if under, err = s.short(bottom); err != nil {
				return r, err
			}
		}
		line, err := s.short(floor)
		if err != nil {
			return r, err
		}
		run, err := measure()
		r.ns, r.counted = float64(run.Took), run.Statistics
		r.ratio = (r.ns - r.loop) / max(line-under, leastNet)
		return r, err
	})
	if err != nil {
		return err
	}
	r.ns *= packets
	r.loop *= packets
	row.readings = append(row.readings, r)
	return nil
}

// short is a short run of a floor: ns a packet.
func (s *session) short(floor *benchRow) (ns float64, err error) {
	p := floor.pass().part(0)
	r, err := p.run(s.CPU)
	return float64(r.Took), err
}

func call(f func() error) error {
	if f == nil {
		return nil
	}
	return f()
}

func (s *session) close() error {
	var errs []error
	for _, c := range s.open {
		errs = append(errs, c.Close())
	}
	return errors.Join(errs...)
}

// memory is the size of the tables.
func (s *session) memory() string {
	total := uint64(0)
	for _, lb := range s.lbs {
		n, err := lb.Memory()
		if err != nil {
			return err.Error()
		}
		total += n
	}
	return fmt.Sprintf("tables of %d load balancers, the largest with %d entries: %d MB", len(s.lbs), s.knownEntries(), total>>20)
}
