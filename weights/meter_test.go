package weights

import (
	"math"
	"testing"
	"time"
)

// fixed is costs of two cores with two services each.
func fixed(a, b, c, d float64) Costs { return Costs{{Fixed(a), Fixed(b)}, {Fixed(c), Fixed(d)}} }

// sent is counters of two cores with two services each; packets are of all ages in turn.
func sent(counts ...uint64) [][]Packets {
	packets := [][]Packets{make([]Packets, 2), make([]Packets, 2)}
	for i, n := range counts {
		p := &packets[i/2][i%2]
		for class := range p {
			p[class] = n / Ages
		}
		p[i] += n % Ages
	}
	return packets
}

func TestMeterPredictsCostTimesRate(t *testing.T) {
	m := NewMeter(fixed(700, 1400, 500, 1000))
	m.Read(5*time.Second, sent(9, 9, 9, 9)) // the origin
	m.Read(5*time.Second+tick, sent(9+10_000, 9+5_000, 9, 9+6_000))
	loads := func() (a, b float64) { return m.Sample(0).Value, m.Sample(1).Value }
	first, second := loads()
	if want := (10_000*700 + 5_000*1400) / 30e6; math.Abs(first-want) > 1e-12 {
		t.Errorf("load %v, want %v", first, want)
	}
	want := 6_000 * 1000 / 30e6
	if math.Abs(second-want) > 1e-12 {
		t.Errorf("load %v, want %v", second, want)
	}
	m.Read(5*time.Second, sent(0, 0, 0, 0))
	if _, again := loads(); again != second {
		t.Error("a clock that went back changed a load")
	}
	m.Read(5*time.Second+2*tick, sent(0, 0, 0, 3_000)) // both started again
	if first, second = loads(); first != 0 || math.Abs(second-0.1) > 1e-12 {
		t.Errorf("loads %v and %v after the counters started again, want 0 and .1", first, second)
	}
}

// TestMeterKeepsAges: a load by age is the age's packets, and ages sum up to the load.
func TestMeterKeepsAges(t *testing.T) {
	m := NewMeter(Costs{{Fixed(1000), Fixed(3000)}})
	packets := [][]Packets{make([]Packets, 2)}
	packets[0][0][4], packets[0][1][4], packets[0][1][Ages-1] = 3000, 1000, 2000
	m.Read(tick, packets)
	s := m.Sample(0)
	if young, old := s.ByAge[4], s.ByAge[Ages-1]; math.Abs(young-0.2) > 1e-12 || math.Abs(old-0.2) > 1e-12 || math.Abs(s.Value-0.4) > 1e-12 {
		t.Errorf("loads %v and %v of %v, want .2 and .2 of .4", young, old, s.Value)
	}
}

// TestMeterComparesCores: the cost of a core is that of new flows' packets, wherever they go.
func TestMeterComparesCores(t *testing.T) {
	m := NewMeter(fixed(100, 400, 300, 400))
	if a, b := m.Sample(0).Cost, m.Sample(1).Cost; a != 1 || b != 1 {
		t.Errorf("costs %v and %v without packets, want 1", a, b)
	}
	m.Read(tick, sent(0, 0, 0, 500))
	if a, b := m.Sample(0).Cost, m.Sample(1).Cost; a != 1 || b != 1 {
		t.Errorf("costs %v and %v of a service that costs the same, want 1", a, b)
	}
	packets := sent(0, 0, 0, 1000)
	packets[1][0][2], packets[0][0][Ages-1] = 100, 9000 // of a service with few old flows
	m.Read(2*tick, packets)
	if a, b := m.Sample(0).Cost, m.Sample(1).Cost; math.Abs(a-50.0/60) > 1e-12 || math.Abs(b-70.0/60) > 1e-12 {
		t.Errorf("costs %v and %v, want 50:70", a, b)
	}
}
