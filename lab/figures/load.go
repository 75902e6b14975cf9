package figures

import (
	"fmt"
	"math"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
)

// Load is how busy the servers were during the run of one policy, sampled at
// times that never decrease.
type Load struct {
	Name     string
	Seconds  []float64 // since the start of the run
	Busy     []float64 // busy workers, mean over the servers
	Fairness []float64 // Jain's index of the busy workers over the servers, 0 to 1; say 1 while all are idle
}

// smoothing is the time constant of the curves as drawn: the paper filters by
// an exponentially weighted mean with α = 1 − exp(−δt), t in seconds.
const smoothing = 1.0

// LoadOverTime draws the mean load above its fairness, one curve a policy: SRLB
// Figure 4. The curves are smoothed as the paper's are; the table is not.
func LoadOverTime(title string, policies []Load) (*Figure, error) {
	names := make([]string, len(policies))
	for i, p := range policies {
		names[i] = p.Name
	}
	if err := checkLoads(names, policies); err != nil {
		return nil, fmt.Errorf("draw load over time: %w", err)
	}
	busy := panel("", "busy workers, mean")
	fairness := panel("time (s)", "fairness index")
	styles := lines(names)
	f := &Figure{
		title:  title,
		legend: legend(names, styles),
		panels: []*plot.Plot{busy, fairness},
		table:  table{columns: []string{"series", "time_s", "busy_workers_mean", "fairness_index"}},
	}
	for i, l := range policies {
		for _, curve := range []struct {
			panel  *plot.Plot
			values []float64
		}{{busy, l.Busy}, {fairness, l.Fairness}} {
			if err := addCurve(curve.panel, smooth(l.Seconds, curve.values), styles[i], plotter.NoStep); err != nil {
				return nil, fmt.Errorf("draw load over time: curve %q: %w", l.Name, err)
			}
		}
		f.table.addLoad(l)
	}
	shareTime(busy, fairness)
	busy.Y.Min, busy.Y.Max = 0, max(busy.Y.Max*1.05, 1)
	fairness.Y.Min, fairness.Y.Max = 0, 1
	return f, nil
}

func checkLoads(names []string, policies []Load) error {
	if err := named(names); err != nil {
		return err
	}
	for _, l := range policies {
		n := len(l.Seconds)
		if n == 0 {
			return fmt.Errorf("curve %q has no points", l.Name)
		}
		if len(l.Busy) != n || len(l.Fairness) != n {
			return fmt.Errorf("curve %q: %d times, %d loads, %d fairness indices; want as many of each", l.Name, n, len(l.Busy), len(l.Fairness))
		}
		for column, values := range map[string][]float64{"time": l.Seconds, "load": l.Busy, "fairness index": l.Fairness} {
			if err := finite(l.Name, column, values); err != nil {
				return err
			}
		}
		for i := 1; i < n; i++ {
			if l.Seconds[i] < l.Seconds[i-1] {
				return fmt.Errorf("curve %q: time %d, %v s, is before the one ahead of it", l.Name, i, l.Seconds[i])
			}
		}
	}
	return nil
}

func smooth(seconds, values []float64) plotter.XYs {
	points := make(plotter.XYs, len(values))
	mean := values[0]
	for i, v := range values {
		if i > 0 {
			mean += (v - mean) * (1 - math.Exp((seconds[i-1]-seconds[i])/smoothing))
		}
		points[i] = plotter.XY{X: seconds[i], Y: mean}
	}
	return points
}

func (t *table) addLoad(l Load) {
	for i, s := range l.Seconds {
		t.rows = append(t.rows, row{curve: l.Name, values: []float64{s, l.Busy[i], l.Fairness[i]}})
	}
}

// shareTime gives panels one time axis, with numbers below the last only.
func shareTime(panels ...*plot.Plot) {
	last := panels[0].X.Max
	for i, p := range panels {
		p.X.Min, p.X.Max = 0, max(last, 1e-3)
		p.X.Tick.Marker = ticks{most: 8, blank: i < len(panels)-1}
	}
}
