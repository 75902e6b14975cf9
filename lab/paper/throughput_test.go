package paper

import (
	"bytes"
	"path/filepath"
	"testing"
)

// TestThroughput: 6LB Figure 13 comes from the bench, each point from its row.
func TestThroughput(t *testing.T) {
	list, err := Named([]string{"6lb-13"})
	if err != nil || len(list) != 1 || !list[0].Measured() {
		t.Fatalf("%v, %v", list, err)
	}
	dir := draw(t, list)
	for _, name := range []string{"hunt", "single"} {
		for _, x := range []string{"1", "100000", "4e+06"} {
			// A packet takes 10 ns at least, the bench's loop included, and 10 µs never.
			if got := number(t, dir, "6lb-13", name, x, "mpps"); got < 0.1 || got > 100 {
				t.Errorf("%s at %s flows: %v million packets a second", name, x, got)
			}
		}
	}
	if rows := csvRows(t, read(t, filepath.Join(dir, "6lb-13.csv"))); len(rows) != 7 {
		t.Errorf("%d rows, want a title and 2 × 3", len(rows))
	}
}

// TestThroughputOrder: a rate stands at its own name and number of flows.
func TestThroughputOrder(t *testing.T) {
	s := sweep{[]string{"hunt", "single"}, []float64{1, 1000}}
	f, err := s.drawRates([]float64{30, 20, 40, 35})
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if _, err := f.Save(dir, "order"); err != nil {
		t.Fatal(err)
	}
	want := []float64{30, 20, 40, 35}
	for i, name := range s.names {
		for j, x := range []string{"1", "1000"} {
			if got := number(t, dir, "order", name, x, "mpps"); got != want[s.index(i, j)] {
				t.Errorf("%s at %s: %v", name, x, got)
			}
		}
	}
	if svg := read(t, filepath.Join(dir, "order.svg")); !bytes.Contains(svg, []byte("1.33 at")) || !bytes.Contains(svg, []byte("1.75 at")) {
		t.Errorf("hunt ÷ single is not 40/30 and 35/20 in the note")
	}
}
