package study

import (
	"testing"
	"time"
)

func TestParseBound(t *testing.T) {
	for text, want := range map[string]Bound{
		"0": {}, "0.25": {Share: 0.25}, "1": {Share: 1},
		"30s": {At: 30 * time.Second, timed: true}, "0s": {timed: true}, "1m30s": {At: 90 * time.Second, timed: true},
	} {
		if got, err := ParseBound(text); err != nil || got != want {
			t.Errorf("%s: %+v, %v, want %+v", text, got, err, want)
		}
	}
	for _, text := range []string{"", "-0.1", "1.5", "NaN", "30", "-3s", "half", "10 s"} {
		if b, err := ParseBound(text); err == nil {
			t.Errorf("%q is %+v", text, b)
		}
	}
}

// TestCount: a time replaces the farm's share, a share its time.
func TestCount(t *testing.T) {
	bound := func(text string) *Bound {
		if text == "" {
			return nil
		}
		b, err := ParseBound(text)
		if err != nil {
			t.Fatal(err)
		}
		return &b
	}
	const s = time.Second
	for _, c := range []struct {
		from, to     string
		low, high    float64
		after, until time.Duration
	}{
		{"", "", 0.25, 0.75, 0, 0},
		{"10s", "", 0, 0.75, 10 * s, 0},
		{"10s", "20s", 0, 1, 10 * s, 20 * s},
		{"", "20s", 0.25, 1, 0, 20 * s},
		{"0.5", "1", 0.5, 1, 0, 0},
	} {
		setting, err := Named("B")
		if err != nil {
			t.Fatal(err)
		}
		if err := setting.Count(bound(c.from), bound(c.to)); err != nil {
			t.Errorf("from %q to %q: %v", c.from, c.to, err)
		}
		if w := setting.Farm.Default; w.From != c.low || w.To != c.high || w.After != c.after || w.Until != c.until {
			t.Errorf("from %q to %q: %v to %v and %v to %v, want %+v", c.from, c.to, w.From, w.To, w.After, w.Until, c)
		}
	}
	for _, c := range [][2]string{{"0.75", ""}, {"", "0.25"}, {"20s", "10s"}, {"10s", "10s"}, {"", "0s"}, {"0.5", "0.5"}} {
		setting, _ := Named("B")
		if err := setting.Count(bound(c[0]), bound(c[1])); err == nil {
			t.Errorf("from %q to %q is taken", c[0], c[1])
		}
	}
}

// TestReaches: a window after the last request is refused.
func TestReaches(t *testing.T) {
	setting, _ := Named("A")
	if err := setting.Count(&Bound{At: time.Hour, timed: true}, nil); err != nil {
		t.Fatal(err)
	}
	if err := at(t, setting, 0.5).Reaches(); err == nil {
		t.Error("requests of five minutes reach an hour")
	}
}
