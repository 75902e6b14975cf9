package control

import "testing"

// TestSilence: a node is down after 20 probes without an answer, and answers again with its first packet;
// a few lost probes are none, and nodes are counted apart.
func TestSilence(t *testing.T) {
	s := NewSilence()
	probe := func(server int, answered uint64, times int, down bool) {
		t.Helper()
		for i := range times {
			if got := s.Probed(server, answered); got != down {
				t.Fatalf("probe %d of node %d: down %v", i, server, got)
			}
		}
	}
	probe(1, 0, 20, false) // never answered
	probe(2, 7, 1, false)
	probe(1, 0, 3, true)
	probe(1, 5, 20, false)
	probe(1, 6, 20, false)
	probe(2, 8, 20, false)
	probe(1, 6, 1, true)
	probe(2, 9, 1, false)
	s.Keep(map[int]bool{2: true})
	probe(1, 6, 20, false)
	probe(2, 9, 20-1, false)
	probe(2, 9, 1, true)
}
