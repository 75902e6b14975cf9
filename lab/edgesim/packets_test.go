package edgesim

import "testing"

// TestPacketsAreThoseOfARun: as many packets as a run of the seed offers, in order, each flow with the
// packets and gaps of its class.
func TestPacketsAreThoseOfARun(t *testing.T) {
	f, traffic := mixed()
	packets, err := traffic.Packets(seed)
	if err != nil {
		t.Fatal(err)
	}
	n, last := uint64(0), map[[2]int]Packet{}
	counts := map[[2]int]int{}
	before := Packet{}
	for p := range packets {
		n++
		if p.At < before.At {
			t.Fatalf("%+v comes after %+v", p, before)
		}
		key := [2]int{p.Class, p.Flow}
		if was, known := last[key]; known && p.At-was.At != traffic.Classes[p.Class].Gap {
			t.Fatalf("%+v comes %v after its flow's last packet", p, p.At-was.At)
		}
		last[key], before = p, p
		counts[key]++
	}
	if want := run(t, f, Policy{}, traffic, seed).Offered; n != want {
		t.Errorf("%d packets, want %d", n, want)
	}
	if got := counts[[2]int{1, 0}]; got != 10 {
		t.Errorf("the first mouse has %d packets, want 10", got)
	}
	if _, err := (Traffic{}).Packets(seed); err == nil {
		t.Error("traffic without a class is taken")
	}
}
