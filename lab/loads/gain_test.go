package loads

import (
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	"proffer/lab/testbed"
)

// gainOf is a report on a program with these p90s, each way.
func gainOf(p90s ...float64) *GainReport {
	r := &GainReport{experiment: Gain{Policy: "hunt:static:2", For: time.Second}}
	for i, w := range r.experiment.ways() {
		r.add("a", w, &gained{latencies: []float64{p90s[i]}}, 1)
	}
	return r
}

// TestGainJudges: the default is held to most of the true load's gain, and each way to fail is named.
func TestGainJudges(t *testing.T) {
	for _, c := range []struct {
		label  string
		report *GainReport
		want   string // empty: it holds
	}{
		{"as much", gainOf(10, 5, 5), ""},
		{"more", gainOf(10, 4, 5), ""},
		{"just enough", gainOf(10, 6, 5), ""},
		{"half of it", gainOf(10, 7.5, 5), "a: the default has 50 % of the gain by the true load, and is to have 80"},
		{"a loss", gainOf(10, 11, 5), "a: the default has 0 % of the gain"},
		{"no gain to have", gainOf(10, 5, 10), "a: the default has 0 %"},
	} {
		failed := c.report.Holds()
		if (failed == nil) != (c.want == "") || failed != nil && !strings.HasPrefix(failed.Error(), c.want) {
			t.Errorf("%s: it says %v, want %q", c.label, failed, c.want)
		}
	}
	r := gainOf(10, 5, 5)
	r.rows[2].LateS = 1
	if failed := r.Holds(); failed == nil || !strings.Contains(failed.Error(), "left 1000.0 ms late") {
		t.Error("of requests that left late it says", failed)
	}
	r = gainOf(10, 5, 5)
	r.rows[1].Failed, r.failed[1] = 1, errors.New("reset")
	if failed := r.Holds(); failed == nil || !strings.Contains(failed.Error(), "a, default: 1 requests failed: reset") {
		t.Error("of a request that failed it says", failed)
	}
}

// TestTrueLoad: the word on the page is the number of connections since its beginning.
func TestTrueLoad(t *testing.T) {
	bed, err := testbed.Up(t.Context(), testbed.Config{Servers: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := bed.Close(); err != nil {
			t.Error(err)
		}
	}()
	n := bed.Servers[0]
	l, err := n.Listen("tcp6", "[::1]:80")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	p := &pageOf{}
	if err := p.open(n); err != nil {
		t.Fatal(err)
	}
	defer p.close()
	var ends []net.Conn
	for i := range 5 {
		conn, err := n.DialContext(t.Context(), "tcp6", "[::1]:80")
		if err != nil {
			t.Fatal(err)
		}
		accepted, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		ends = append(ends, conn, accepted)
		wantTrueLoad(t, p, 2*(i+1)) // both ends are the server's here
	}
	for _, end := range ends {
		if err := end.Close(); err != nil {
			t.Error(err)
		}
	}
	wantTrueLoad(t, p, 0)
}

func wantTrueLoad(t *testing.T, p *pageOf, want int) {
	t.Helper()
	var busy uint32
	var err error
	for range 100 { // a connection ends a moment after its second close
		if busy, err = p.load(); err != nil {
			t.Fatal(err)
		}
		if int(busy) == want {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Errorf("%d connections, want %d", busy, want)
}
