package lab

import (
	"encoding/json"
	"testing"
)

// TestLatencyPrintsWhatItPromises: the fields of --json are an interface; that the
// connections came as their names say is what the experiment itself demands. How
// long they took is not claimed.
func TestLatencyPrintsWhatItPromises(t *testing.T) {
	out := experimentJSON(t, "latency", "--connections", "100", "--servers", "3")
	var rows []map[string]any
	if err := json.Unmarshal(out, &rows); err != nil || len(rows) != 3 {
		t.Fatalf("%v: %s", err, out)
	}
	for i, method := range []string{"single", "hunt-first", "hunt-second"} {
		wantFields(t, rows[i], "method", "connections", "p50_us", "p90_us", "p99_us", "mean_us")
		if rows[i]["method"] != method || rows[i]["connections"] != 100.0 || rows[i]["p50_us"].(float64) <= 0 {
			t.Errorf("%v", rows[i])
		}
	}
}
