package raw

import (
	"testing"
	"time"
)

// In virtual time, with a caller that is held up for 30 ms: nothing leaves in
// bursts, and all has left some time later.
func TestPacerCatchesUpByDegrees(t *testing.T) {
	for _, rate := range []float64{10, 1000, 50_000, 123_456} {
		p := pacer{rate: rate}
		behind := 0
		for now := time.Duration(0); now < time.Second; now += p.rest(1, 1) {
			if now == 500*ms {
				now += 30 * ms
			}
			due := p.due(now)
			if due > max(1, int(rate/1000)) || due < 0 {
				t.Fatalf("rate %v: %d due at %v", rate, due, now)
			}
			p.given += due
			behind = 1 + int(now.Seconds()*rate) - p.given
			if behind < 0 {
				t.Fatalf("rate %v: %d given by %v", rate, p.given, now)
			}
		}
		if behind != 0 {
			t.Errorf("rate %v: %d behind at the end", rate, behind)
		}
	}
	if p := (pacer{}); p.due(time.Hour) != Batch || p.rest(Batch, Batch) != 0 || p.rest(Batch, 0) == 0 {
		t.Error("without a rate: want full batches without rest, but where the device is full")
	}
}

const ms = time.Millisecond
