package lb_test

import (
	"testing"
	"time"

	"proffer/proof/rig"
	"proffer/wire"
)

// TestLearnedFull: where the table is full, a flow goes by its digest, also its later packets.
func TestLearnedFull(t *testing.T) {
	r := rig.NewLB(t, rig.Hits{}, learned(8))
	hopsOf(t, r)
	r.Table.Fill(t, rig.Start)
	for i := range 200 {
		server := sendTo(t, r, "SYN", client(i, wire.SYN), -1, "deliver", "table_full")
		sendTo(t, r, "ACK", client(i, wire.ACK), server, "recover_presumed", "table_full")
		sendTo(t, r, "data", payload(client(i, wire.ACK)), server, "recover_presumed", "table_full")
	}
	wantSeat(t, r, "full", 0, 0, 0)
}

// TestLearnedGivesWay: entries of flows of one packet, of two, and of closed ones give way after
// four seconds, no sooner, and do not count any more.
func TestLearnedGivesWay(t *testing.T) {
	r := rig.NewLB(t, rig.Hits{}, learned(8))
	hopsOf(t, r)
	all, _ := r.Table.Count(t)
	for i := 0; all < 900; i++ {
		for _, flags := range [][]byte{{wire.SYN}, {wire.SYN, wire.ACK}, {wire.SYN, wire.ACK, wire.FIN | wire.ACK}}[i%3] {
			r.Run(t, client(i, flags).Frame())
		}
		all, _ = r.Table.Count(t)
	}
	before := uint32(0)
	for _, s := range seats(t, r, 0) {
		before += s.Established + s.Embryonic
	}
	if before == 0 {
		t.Fatal("no flow counts")
	}
	evicted := func() (n uint64) {
		counters, err := r.Counters()
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range counters {
			if c.Name == "evicted_embryonic" || c.Name == "evicted_brief" || c.Name == "evicted_over" {
				n += c.Value
			}
		}
		return n
	}
	for i := range 2000 {
		r.Run(t, client(10_000+i, wire.SYN).Frame())
	}
	if n := evicted(); n != 0 {
		t.Errorf("%d entries gave way at once", n)
	}
	r.At(t, rig.Start+5*time.Second)
	for i := range 4000 {
		r.Run(t, client(20_000+i, wire.SYN).Frame())
	}
	if n := evicted(); n < 500 {
		t.Errorf("%d entries gave way", n)
	}
	wantRecount(t, r, 0)
}
