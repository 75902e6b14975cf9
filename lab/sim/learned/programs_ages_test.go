package learned

import (
	"math/rand/v2"
	"time"

	"proffer/lab/sim"
	"proffer/proof/rig"
	"proffer/wire"
)

// talks are the data packets of flows, for LBs that sample ages. The simulated policy draws packets
// in batches, and samples the age at each. Here each packet is an event, and the policy gets the ages
// that an LB samples: at the first packet in each date of the flow's entry, 2^28 ns, from the fourth
// packet on, and at the FIN.
type talks struct {
	*programs
	ages  *ages
	rng   *rand.Rand
	flows map[int32]*talk
}

type talk struct {
	openedAt
	packets int
	date    uint16 // of the entry
}

// silence is a rate at which the policy draws no packets of its own.
const silence = 1e-8

func newTalks(p *programs, seed uint64) *talks {
	t := &talks{programs: p, rng: rand.New(rand.NewPCG(seed, 9)), flows: map[int32]*talk{}}
	t.ages = p.own.(*Watchful).learner.(*ages)
	p.Messages = t
	return t
}

func (t *talks) seen() uint16 { return uint16((int64(rig.Start) + t.Instant) / rig.Unit) }

// begin is a flow's first data, its second packet.
func (t *talks) begin(flow uint32, at openedAt) {
	t.flows[int32(flow)] = &talk{openedAt: at, packets: 2, date: t.seen()}
	t.plan(int32(flow))
}

func (t *talks) plan(flow int32) {
	t.Send(time.Duration(t.rng.ExpFloat64()*float64(time.Second)/sim.DefaultPacketRate), flow)
}

// Arrived is the next packet of a flow, unless it has ended.
func (t *talks) Arrived(flow int32) {
	f := t.flows[flow]
	if f == nil {
		return
	}
	t.steady(f.lb, f.server, uint32(flow), wire.ACK, "more")
	f.packets++
	if f.packets > 3 && f.date != t.seen() {
		t.sample(f)
	}
	f.date = t.seen()
	t.plan(flow)
}

// end is a flow's FIN.
func (t *talks) end(flow uint32) {
	t.sample(t.flows[int32(flow)])
	delete(t.flows, int32(flow))
}

// sample gives the policy the age that the flow's LB samples.
func (t *talks) sample(f *talk) {
	word := t.rng.Uint64()
	t.ages.sample(f.lb, f.server, t.Instant, t.age(f.at), word)
	t.keep(f.lb, f.server, word)
}
