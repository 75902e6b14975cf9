package bench

import (
	"fmt"
	"math"

	"proffer/dataplane"
	inkernel "proffer/dataplane/bench"
)

// benched is a program in a bench that counts its work.
type benched interface {
	Run(cpu, packets int, d *inkernel.Drill) (inkernel.Run, error)
	Counters() ([]dataplane.Counter, error)
}

// counts is how often a packet meets each reason; those that are not named it
// must not meet.
type counts map[string]float64

// anyNumber is no share of the packets: the counter may move as it likes.
var anyNumber = math.NaN()

// pass is packets of one kind on their way through a program, and the
// verdicts on them.
type pass struct {
	in      benched
	drill   inkernel.Drill
	packets int
	want    counts
	verdict int
}

// XDP's and tc's verdicts (linux/bpf.h, linux/pkt_cls.h).
const (
	xdpPass  = 2
	xdpTX    = 3
	tcUnspec = 7 // -1, of which bench.bpf.c keeps three bits
	tcOK     = 0
)

// straying is how many of the packets of a pass may do something else: one in so
// many, as where two digests are alike, or both lines of a flow are full.
const straying = 1_000

// part is the i-th of parts parts of a pass, each about as many packets.
func (p pass) part(i int) pass {
	each := p.packets / p.drill.Packets() / parts // connections, or packets
	p.packets = each * p.drill.Packets()
	if p.drill.Flows == 0 {
		p.drill.First += uint32(i * each)
		if p.drill.Tags != nil {
			p.drill.Tags = p.drill.Tags[i*each:][:each]
		}
	}
	if p.drill.OpensEvery > 0 {
		p.drill.Opened += uint32(i * each / p.drill.OpensEvery)
	}
	return p
}

// run makes a pass on a CPU where the thread is. It is an error if the packets
// took another path than the one that the pass is about.
func (p *pass) run(cpu int) (r inkernel.Run, err error) {
	before, err := p.in.Counters()
	if err != nil {
		return r, err
	}
	r, err = p.in.Run(cpu, p.packets, &p.drill)
	if err != nil {
		return r, err
	}
	after, err := p.in.Counters()
	if err != nil {
		return r, err
	}
	if err := moved(before, after, r.Packets, p.want); err != nil {
		return r, err
	}
	if off := float64(r.Packets - r.Verdicts[p.verdict]); off > float64(r.Packets)/straying+1 {
		return r, fmt.Errorf("%.0f of %d packets have another verdict than %d: %v", off, r.Packets, p.verdict, r.Verdicts)
	}
	return r, nil
}

// moved checks which counters moved, and how far.
func moved(before, after []dataplane.Counter, packets uint64, want counts) error {
	slack := float64(packets)/straying + 1
	named := 0
	for i, c := range after {
		share, ok := want[c.Name]
		if ok {
			named++
		}
		got, expected := float64(c.Value-before[i].Value), share*float64(packets)
		if got < expected-slack || got > expected+slack {
			return fmt.Errorf("counter %s moved by %.0f, expected %.0f of %d packets: this is not the path to measure", c.Name, got, expected, packets)
		}
	}
	if named < len(want) {
		return fmt.Errorf("there are no such counters: expected %v", want)
	}
	return nil
}
