package loads

import (
	"strings"
	"testing"
	"time"

	"proffer/lab/application"
	"proffer/topo"
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
			r := &Report{}
			p := &application.Program{Name: "a"}
			r.add(p, application.CPU, []string{"work"}, readings(c.signal), []float64{c.idle})
			if why := r.results[0].wrong(0); !strings.HasPrefix(why, c.want) || (why == "") != (c.want == "") {
				t.Errorf("%q is wrong, want %q", why, c.want)
			}
			if failed := r.Holds(); (failed == nil) != (c.want == "") {
				t.Error("the experiment says", failed)
			}
		})
	}
}

// TestLoadExceptions: a program is an exception for a kind of requests, of which its own word is to be
// right. That a word is wrong is no matter where the default is right.
func TestLoadExceptions(t *testing.T) {
	right, wrong := func(truth float64) float64 { return truth }, func(truth float64) float64 { return truth / 2 }
	has := func(*application.Site) (*topo.Offering, error) { return nil, nil }
	for _, c := range []struct {
		label     string
		kind      application.Kind
		byDefault func(float64) float64
		word      func(float64) float64 // nil: it has none
		holds     bool
	}{
		{"an exception with a word that is right", application.Wait, wrong, right, true},
		{"an exception with a word that is wrong", application.Wait, wrong, wrong, false},
		{"an exception without a word", application.Wait, wrong, nil, false},
		{"an exception by which the default is right", application.Wait, right, nil, true},
		{"no exception, a word that is right", application.CPU, wrong, right, false},
		{"no exception, a word that is wrong", application.CPU, right, wrong, true},
	} {
		p := &application.Program{Name: "a", Exceptions: map[application.Kind]string{application.Wait: "known"}}
		signals := []string{"work"}
		samples := readings(func(_ int, truth float64) float64 { return c.byDefault(truth) })
		if c.word != nil {
			p.Word, signals = has, []string{"work", "busy", "page"}
			for i, s := range samples {
				samples[i].read = append(s.read, 0, c.word(s.truth))
			}
		}
		r := &Report{}
		r.add(p, c.kind, signals, samples, []float64{0, 500, 0})
		if err := r.Holds(); (err == nil) != c.holds {
			t.Errorf("%s: %v", c.label, err)
		}
	}
}

// TestLoadCures: an exception whose own word is wrong has a program that cures it, which keeps the
// figures under the same requests.
func TestLoadCures(t *testing.T) {
	for _, c := range []struct {
		label string
		kind  application.Kind // of the cure's requests
		cure  float64          // the cure's signal, of the truth
		want  string
	}{
		{"cured", application.CPU, 1, ""},
		{"the cure is wrong", application.CPU, 0.5, "b, which cures it: the default is wrong: bias -50 %"},
		{"the cure has other requests", application.Mixed, 1, "b, which cures it, is not run"},
	} {
		r := &Report{}
		signal := func(part float64) []sampled {
			return readings(func(_ int, truth float64) float64 { return part * truth })
		}
		r.add(&application.Program{Name: "a", Exceptions: map[application.Kind]string{application.CPU: "known"}, Cure: "b"}, application.CPU, []string{"work"}, signal(0.5), nil)
		r.add(&application.Program{Name: "b"}, c.kind, []string{"work"}, signal(c.cure), nil)
		if err := r.Holds(); (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", c.label, err)
		}
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
