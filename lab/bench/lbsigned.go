package bench

import (
	"errors"
	"sync/atomic"

	inkernel "proffer/dataplane/bench"
	"proffer/wire"
)

// signed gives a pass the tags of a server's signals.
func (l *lbBench) signed(m mode, p pass, function wire.Function) pass {
	p.drill.Tags = l.tags[function]
	if p.drill.Tags == nil {
		p.drill.Tags = m.tags(l.keys[0], 0, function, benchMade)
		l.tags[function] = p.drill.Tags
	}
	p.drill.Tag = wire.EthernetBytes + 8 + wire.SegmentBytes/2 // the outer source's identifier
	return p
}

// signedOfferRow is offers that the LB signs.
func (s *session) signedOfferRow(m mode) *benchRow {
	return s.strangersRow(m, "offer-signed", lbSigned, wire.SYN, counts{"offer": 1})
}

// signedNewRow is new-filling with tags.
func (s *session) signedNewRow(m mode) *benchRow {
	row := s.makingRow(m, "new-filling-signed", lbSigned, nil, func(lb *lbBench) pass {
		return lb.signed(m, lb.fromServer(m, 0, wire.CreateStickiness, wire.SYN|wire.ACK, benchMade, isNew), wire.CreateStickiness)
	})
	row.cleanup = func() error {
		lb := s.lbs[lbSigned]
		p := lb.fromServer(m, 0, wire.RemoveStickiness, wire.RST|wire.ACK, benchMade, counts{"stickiness_removed": 1})
		return s.untimed(lb.signed(m, p, wire.RemoveStickiness))
	}
	return row
}

// signedSignalRow is signal with tags, about 1,000 flows that live in this run only.
func (s *session) signedSignalRow(m mode) *benchRow {
	const flows = 1000
	row := s.signedNewRow(m)
	row.kind, row.flows = "signal-signed", flows
	row.prepare = func() error {
		lb := s.lbs[lbSigned]
		if err := lb.sweep(0); err != nil {
			return err
		}
		return s.untimed(lb.signed(m, lb.fromServer(m, 0, wire.CreateStickiness, wire.ACK, benchMade, isRecovered), wire.CreateStickiness))
	}
	row.pass = func() pass {
		lb := s.lbs[lbSigned]
		p := lb.signed(m, lb.fromServer(m, 0, wire.CreateStickiness, wire.ACK, packets, counts{"stickiness_repeated": 1}), wire.CreateStickiness)
		p.drill.Flows, p.drill.Tags = flows, p.drill.Tags[:flows]
		return p
	}
	return row
}

const (
	contendedMade = insertEntries / 2 // at most, by the second CPU
	contendedStep = 5_000             // packets of the second CPU between two looks at the first
	contendedMost = 20                // times that a run is made, where the first CPU stops on the way
)

var errUncontended = errors.New("the second CPU had made all its flows before the first was done")

// contendedRow is data of known flows while another CPU makes flows through the
// same program.
func (s *session) contendedRow(m mode, flows int) *benchRow {
	row := s.lbRow(m, "steer-contended", flows)
	var lb *lbBench
	made := 0
	var known, others uint32 // the first of the known flows and of those that the second CPU makes
	row.setup = func() (err error) {
		lb, err = s.lb(lbEmpty)
		return err
	}
	row.prepare = func() error {
		if err := lb.sweep(benchMade); err != nil {
			return err
		}
		known, others = lb.unused(flows), lb.unused(contendedMade)
		p := lb.fromServer(m, 0, wire.CreateStickiness, wire.ACK, flows, isRecovered)
		p.drill.First = known
		return s.untimed(p)
	}
	row.whole = func() (r inkernel.Run, err error) {
		for range contendedMost {
			if r, made, err = s.contend(lb, m, flows, known, others); !errors.Is(err, errUncontended) {
				break
			}
			if e := errors.Join(row.cleanup(), row.prepare()); e != nil {
				return r, e
			}
		}
		return r, err
	}
	row.cleanup = func() error {
		return errors.Join(s.reset(lb, m, known, uint32(flows)), s.reset(lb, m, others, uint32(made)))
	}
	return row
}

// contend measures while the second CPU makes flows, and returns how many it made.
func (s *session) contend(lb *lbBench, m mode, flows int, known, others uint32) (r inkernel.Run, made int, err error) {
	before, err := lb.Counters()
	if err != nil {
		return r, 0, err
	}
	var over atomic.Bool
	running, other := make(chan struct{}), make(chan error, 1)
	go func() {
		other <- onCPU(s.second, func() error {
			d := m.fromServer(0, wire.CreateStickiness, wire.ACK, 0)
			for made < contendedMade && (!over.Load() || made == 0) {
				d.First = others + uint32(made)
				r, err := lb.Run(s.second, contendedStep, &d)
				if made == 0 {
					close(running)
				}
				if made += int(r.Packets); err != nil {
					return err
				}
			}
			return nil
		})
	}()
	<-running
	d := m.fromClient(wire.ACK)
	d.Flows, d.First = uint32(flows), known
	r, err = lb.Run(s.CPU, packets, &d)
	exhausted := made >= contendedMade
	over.Store(true)
	if err = errors.Join(err, <-other); err != nil {
		return r, made, err
	}
	if exhausted {
		return r, made, errUncontended
	}
	after, err := lb.Counters()
	if err != nil {
		return r, made, err
	}
	all := float64(r.Packets) + float64(made)
	want := counts{"steer": float64(r.Packets) / all, "stickiness_recovered": float64(made) / all}
	return r, made, moved(before, after, uint64(all), want)
}
