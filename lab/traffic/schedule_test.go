package traffic

import (
	"strings"
	"testing"
	"time"
)

// lagging returns 1000 rows, of which late lag by so much and the others do not.
func lagging(late int, lag, service time.Duration) []Row {
	rows := make([]Row, 1000)
	for i := range rows {
		rows[i] = Row{Intended: time.Second, Started: time.Second, Service: service}
		if i < late {
			rows[i].Started += lag
		}
	}
	return rows
}

func TestScheduleIsKeptOrNot(t *testing.T) {
	for _, c := range []struct {
		name string
		rows []Row
		kept bool
	}{
		{"nothing sent", nil, true},
		{"on time", lagging(0, 0, 20*ms), true},
		{"all as late as allowed in the mean", lagging(1000, ms*4/10, 20*ms), true},
		{"and no more", lagging(1000, ms*4/10+1, 20*ms), false},
		{"two in a hundred as late as allowed", lagging(20, 5*ms, 20*ms), true},
		{"and no more", lagging(20, 5*ms+1, 20*ms), false},
		{"one in two hundred too late", lagging(5, 50*ms, 20*ms), true},
		{"long services allow more", lagging(1000, 2*ms, 100*ms), true},
		{"short services allow 0.1 ms", lagging(1000, ms/10, ms), true},
	} {
		err := ScheduleOf(c.rows).Kept()
		if (err == nil) != c.kept {
			t.Errorf("%s: got %v, want kept: %v", c.name, err, c.kept)
		}
		if err != nil && !strings.Contains(err.Error(), "could not keep its schedule") {
			t.Errorf("%s: the error does not say so: %v", c.name, err)
		}
	}
}

// TestHopes: a run is lost as soon as no later request can save it, and not before: with all
// requests to come on time, it is kept exactly where it was not called lost.
func TestHopes(t *testing.T) {
	for _, lag := range []time.Duration{0, ms / 10, ms * 4 / 10, ms * 4 / 10 * 3, 5 * ms, 5*ms + 1, 50 * ms, time.Hour} {
		for _, late := range []int{0, 1, 5, 10, 11, 20, 500, 1000} {
			rows := lagging(late, lag, 20*ms)
			requests := make([]Request, len(rows))
			for i, r := range rows {
				requests[i] = Request{Service: r.Service}
			}
			h := hopesOf(requests)
			for _, r := range rows[:late] {
				h.sent(r.Started - r.Intended)
			}
			if kept := ScheduleOf(rows).Kept() == nil; kept == h.lost() {
				t.Errorf("%d of 1000 requests %v late: kept %t, lost %t", late, lag, kept, h.lost())
			}
		}
	}
	if hopesOf(nil).lost() {
		t.Error("a run without requests is lost")
	}
}
