package experiment

import (
	"strings"
	"testing"
	"time"

	"proffer/lab/application"
)

// readings are samples of a load that goes up and down, of which a signal makes what it does.
func readings(signal func(i int, truth float64) float64) (samples []sampled) {
	for i := range 400 {
		truth := float64(2 + i/100*4)
		samples = append(samples, sampled{at: time.Duration(i) * lookEvery, truth: truth, long: true, read: []float64{signal(i, truth)}})
	}
	return samples
}

// TestLoadJudges: a signal that reads the truth passes, and each way to be wrong is named.
func TestLoadJudges(t *testing.T) {
	for _, c := range []struct {
		label  string
		idle   float64
		signal func(i int, truth float64) float64
		want   string // empty: nothing is wrong
	}{
		{"the truth", 0, func(_ int, truth float64) float64 { return truth }, ""},
		{"one more", 0, func(_ int, truth float64) float64 { return truth + 0.9 }, ""},
		{"a tenth more", 0, func(_ int, truth float64) float64 { return truth * 1.1 }, ""},
		{"a fifth more", 0, func(_ int, truth float64) float64 { return truth * 1.2 }, "bias +20 %"},
		{"a half", 0, func(_ int, truth float64) float64 { return truth / 2 }, "bias -50 %"},
		{"constant", 0, func(int, float64) float64 { return 8 }, "correlation 0.00"},
		{"idle connections", 20, func(_ int, truth float64) float64 { return truth }, "20.0 with idle connections"},
		{"now and then 0", 0, func(i int, truth float64) float64 {
			if i < 12 {
				return 0
			}
			return truth
		}, "0 in 3.0 % of the samples"},
	} {
		t.Run(c.label, func(t *testing.T) {
			r := &LoadReport{}
			p := &application.Program{Name: "a", Exceptions: map[application.Kind]string{application.Wait: "known"}}
			r.add(p, application.CPU, []string{"work"}, readings(c.signal), []float64{c.idle})
			if why := r.results[0].wrong(); !strings.HasPrefix(why, c.want) || (why == "") != (c.want == "") {
				t.Errorf("%q is wrong, want %q", why, c.want)
			}
			if failed := r.Holds(); (failed == nil) != (c.want == "") {
				t.Error("the experiment says", failed)
			}
			r.results[0].kind = application.Wait
			if failed := r.Holds(); failed != nil {
				t.Error("of an exception the experiment says", failed)
			}
		})
	}
}

// TestLoadTruth: requests that have begun and not ended are in progress.
func TestLoadTruth(t *testing.T) {
	p := make(inProgress, 4)
	p[1].Store(20)
	p[3].Store(10)
	if n, oldest := p.truth(); n != 2 || oldest != 10 {
		t.Errorf("%d requests, the oldest since %d; want 2 since 10", n, oldest)
	}
}
