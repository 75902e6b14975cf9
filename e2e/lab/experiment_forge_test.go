package lab

import (
	"encoding/json"
	"testing"

	"proffer/e2e/kit"
	"proffer/lab/farmrun"
	"proffer/lab/storms"
)

// TestForgedSignalsChangeNothing: and every way to refuse one was taken.
func TestForgedSignalsChangeNothing(t *testing.T) {
	e := storms.Forge{Packets: 50_000, Servers: 3, Seed: 1, Programs: kit.Proffer}
	report, err := e.Run(t.Context(), func(farmrun.Step) {})
	if err != nil {
		t.Fatal(err)
	}
	if err := report.Holds(); err != nil {
		t.Error(err)
	}
	if report.Packets != 50_000 || report.Signals != 45_000 {
		t.Errorf("%d frames, %d signals", report.Packets, report.Signals)
	}
	for _, name := range []string{
		"lb.drop_bad_tag", "lb.drop_outside", "lb.drop_unknown_function", "lb.drop_segments_left",
		"lb.drop_malformed_srh", "lb.drop_nothing_inside", "lb.drop_not_from_vip", "lb.drop_source_route",
		"agent.drop_bad_tag", "agent.drop_outside", "agent.drop_malformed_srh", "agent.drop_nothing_inside",
		"agent.drop_truncated", "agent.drop_not_our_service",
	} {
		if report.Counters[name] == 0 {
			t.Errorf("nothing was refused as %s: %v", name, report.Counters)
		}
	}
}

// TestForgePrintsWhatItPromises: the fields of --json are an interface.
func TestForgePrintsWhatItPromises(t *testing.T) {
	out := experimentJSON(t, "forge", "--packets", "2000", "--servers", "2")
	var object map[string]any
	if err := json.Unmarshal(out, &object); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	wantFields(t, object, "packets", "signals", "floods", "seen", "changed_maps", "delivered", "accepted", "entries",
		"flows", "lost", "asking", "recounted", "counters", "servers", "seed")
}
