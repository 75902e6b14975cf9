package storms

import (
	"net/netip"
	"strings"
	"testing"

	"proffer/lab/traffic"
)

// answersOf are one a flow: the server that answered, or how it ended.
func answersOf(all ...string) (answers []traffic.Answer) {
	for i, what := range all {
		a := traffic.Answer{From: netip.AddrPortFrom(netip.IPv6Loopback(), uint16(i)), Outcome: traffic.Outcome(what)}
		if strings.HasPrefix(what, "s") && what != string(traffic.Silent) {
			a.Server, a.Outcome = what, traffic.OK
		}
		answers = append(answers, a)
	}
	return answers
}

func TestJudgeCountsEachLossOnce(t *testing.T) {
	r := &rolling{server: []string{"s1", "s1", "s2", "s2", "s3", "s3"}, lost: make([]bool, 6)}
	var c Change
	if err := r.judge(&c, "s1", answersOf("reset", "silent", "s2", "reset", "silent", "s3")); err != nil {
		t.Fatal(err)
	}
	if c.Live != 2 || c.Removed != 2 || c.Extra != 2 || c.Silent != 1 || len(c.fates) != 6 {
		t.Errorf("first change: %+v", c)
	}
	c = Change{}
	if err := r.judge(&c, "s2", answersOf("reset", "silent", "closed", "reset", "silent", "closed")); err != nil {
		t.Fatal(err)
	}
	if c.Live != 0 || c.Removed != 1 || c.Extra != 1 || c.Silent != 0 || len(c.fates) != 2 {
		t.Errorf("second change: %+v", c)
	}
}

// TestJudgeRefusesTheImpossible: a connection does not move, and the dead do not
// answer; a run in which that shows has measured something else.
func TestJudgeRefusesTheImpossible(t *testing.T) {
	for _, c := range []struct{ server, gone, answer string }{{"s1", "s3", "s2"}, {"s1", "s1", "s1"}} {
		r := &rolling{server: []string{c.server}, lost: []bool{false}}
		if err := r.judge(&Change{}, c.gone, answersOf(c.answer)); err == nil {
			t.Errorf("%+v passed", c)
		}
	}
}

func TestEnoughIsNineInTen(t *testing.T) {
	for _, c := range []struct {
		method          Method
		live, recovered int
		enough          bool
	}{
		{WithHistory, 100, 90, true},
		{WithHistory, 100, 89, false},
		{WithoutHistory, 100, 89, false},
		{ByHash, 100, 0, true},
	} {
		err := (&rolling{method: c.method}).enough(Change{Live: c.live, Recovered: c.recovered})
		if (err == nil) != c.enough {
			t.Errorf("%+v: %v", c, err)
		}
	}
}
