package lab

import (
	"errors"
	"testing"
	"time"

	"proffer/e2e/kit"
	"proffer/lab/farmrun"
	"proffer/lab/hlb"
	"proffer/lab/tables"
	"proffer/lab/traffic"
)

// TestRTTExperiment: every request is answered, by servers without agents, also beside a flood; the
// LBs notice the flood, and change the rule by which flows count, and nothing else does. How long
// requests take is for the experiment to judge.
func TestRTTExperiment(t *testing.T) {
	report := unhurriedRTT(t)
	if err := report.Kept(); err != nil {
		t.Error(err)
	}
	rows := report.Summaries()
	if len(rows) != 3 || rows[2].Forged == 0 || rows[0].Forged+rows[1].Forged > 0 {
		t.Errorf("%+v", rows)
	}
	for _, row := range rows {
		if row.Requests < 100 || row.P90 <= 0 || row.Weights <= 0 {
			t.Errorf("%+v", row)
		}
	}
	if paths, err := tables.Save(t.TempDir(), report.Files()...); err != nil || len(paths) != 4 {
		t.Errorf("it wrote %v, %v", paths, err)
	}
}

// unhurriedRTT runs it, again with requests twice as long, and so half as many a second, while the
// machine is too slow or busy to send them on time.
func unhurriedRTT(t *testing.T) *hlb.RTTReport {
	t.Helper()
	for slower := time.Duration(1); slower <= 16; slower *= 2 {
		e := hlb.RTT{
			RTTs: []time.Duration{0}, Servers: 4, LBs: 2, Cores: 2, Mean: slower * 50 * time.Millisecond, Load: 0.5,
			For: slower * 2 * time.Second, Flood: 5, Seed: 1, Programs: kit.Proffer,
		}
		report, err := e.Run(t.Context(), func(farmrun.Step) {})
		if err == nil {
			return report
		}
		if !errors.Is(err, traffic.ErrLate) {
			t.Fatal(err)
		}
		t.Log(err)
	}
	t.Fatal("requests leave late on this machine even at a sixteenth of the load")
	return nil
}
