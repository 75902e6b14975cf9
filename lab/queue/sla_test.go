package queue

import (
	"math"
	"strings"
	"testing"
)

// TestSeventyOneServers: with π_90 = 6 met by 100 servers under SC, SR_4 needs 71
// (§V-G).
func TestSeventyOneServers(t *testing.T) {
	sla := SLA{Percentile: 90, Time: 6}
	lambda, err := MaxLoad(Single, sla, 0)
	if err != nil {
		t.Fatal(err)
	}
	wantClose(t, "λ of SC", lambda, 1-math.Ln10/6, 1e-12)
	for p, want := range map[Policy]int{Single: 100, 4: 71} {
		if n, err := Servers(p, 100*lambda, sla, 0); n != want || err != nil {
			t.Errorf("%v: %d servers (%v), want %d", p, n, err, want)
		}
	}
	if r, err := Reduction(4, sla, 0); math.Abs(r-0.708) > 0.001 || err != nil {
		t.Errorf("N'/N = %v (%v), want 0.708", r, err)
	}
}

// TestMaxLoadInvertsPercentile for every policy, near 0 and near 1.
func TestMaxLoadInvertsPercentile(t *testing.T) {
	for _, p := range somePolicies {
		for _, x := range []float64{50, 90, 99.9} {
			for _, factor := range []float64{1.1, 2, 10, 300} {
				sla := SLA{Percentile: x, Time: factor * idle(p, SLA{Percentile: x}, 0.5)}
				lambda, err := MaxLoad(p, sla, 0.5)
				if err != nil {
					t.Errorf("%v %v: %v", p, sla, err)
					continue
				}
				if lambda > 1-1e-6 {
					continue // a float64 has few digits of 1 − λ left
				}
				wantClose(t, p.String(), solve(t, p, lambda, 0.5).Percentile(x), sla.Time, 1e-8)
			}
		}
	}
}

func TestMaxLoadRefuses(t *testing.T) {
	for _, c := range []struct {
		p     Policy
		sla   SLA
		delay float64
		want  string
	}{
		{4, SLA{90, 2.3}, 0, "no number of servers answers 90 % within 2.3: even an idle server needs 2.3"},
		{Single, SLA{90, 2}, 0, "no number of servers answers 90 % within 2: even an idle server needs 2.3"},
		{0, SLA{90, 3}, 1, "no number of servers answers 90 % within 3: even an idle server needs 3.3"},
		{4, SLA{0, 6}, 0, "percentile 0: want more than 0 and less than 100"},
		{4, SLA{100, 6}, 0, "percentile 100: want more than 0 and less than 100"},
		{4, SLA{math.NaN(), 6}, 0, "percentile NaN: want"},
		{4, SLA{90, 0}, 0, "time 0: want more than 0"},
		{4, SLA{90, math.Inf(1)}, 0, "time +Inf: want more than 0"},
		{-2, SLA{90, 6}, 0, "model of threshold -2: want 0 or more"},
	} {
		if _, err := MaxLoad(c.p, c.sla, c.delay); err == nil || !strings.HasPrefix(err.Error(), c.want) {
			t.Errorf("got %v, want %s", err, c.want)
		}
	}
	if _, err := Servers(4, 0, SLA{90, 6}, 0); err == nil {
		t.Error("a rate of 0 is accepted")
	}
}
