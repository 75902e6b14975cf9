package stats

import "testing"

func TestCounted(t *testing.T) {
	for n, want := range map[int]string{0: "0 LBs", 1: "1 LB", 2: "2 LBs"} {
		if got := Counted(n, "LB"); got != want {
			t.Errorf("%d: %q, want %q", n, got, want)
		}
	}
}
