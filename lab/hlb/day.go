package hlb

import (
	"fmt"
	"math"
	"time"

	"proffer/lab/farmrun"
	"proffer/lab/figures"
	"proffer/lab/stats"
)

// Figures 7 and 8: the day.

// hourly are the mean response times of the hours; NaN of an hour without an answer.
func (h *result) hourly(hour time.Duration) []float64 {
	sums, counts := make([]float64, hours), make([]float64, hours)
	for _, r := range h.requests {
		if i := int((r.at - h.from) / hour.Seconds()); r.at >= h.from && i < hours {
			sums[i] += r.took
			counts[i]++
		}
	}
	for i := range sums {
		sums[i] /= counts[i]
	}
	return sums
}

// hourlyWeights are the ratios of weights of the hours; NaN of one without.
func (h *result) hourlyWeights(hour time.Duration) []float64 {
	all := make([]float64, hours)
	for i := range all {
		from := h.from + float64(i)*hour.Seconds()
		if all[i] = h.weightsRatio(from, from+hour.Seconds()); all[i] == 0 {
			all[i] = math.NaN()
		}
	}
	return all
}

// ofHours is a curve with a point an hour.
func ofHours(name string, values []float64, unit float64) figures.Curve {
	c := figures.Curve{Name: name}
	for i, v := range values {
		if !math.IsNaN(v) {
			c.Points = append(c.Points, figures.Point{X: float64(i) + 0.5, Y: v * unit})
		}
	}
	return c
}

func (r *Report) drawDay(f figure) ([]drawing, error) {
	e := r.experiment
	response := figures.Panel{Y: figures.Axis{Label: "mean response (ms)", Column: "mean_ms"}}
	weights := figures.Panel{Y: figures.Axis{Label: "weights, 2 cores ÷ 1", Column: "weights_ratio"}}
	rate := figures.Panel{Y: figures.Axis{Label: "rate, of the peak", Column: "rate", To: 1.05}}
	for _, h := range r.of(f) {
		response.Curves = append(response.Curves, ofHours(h.cell.policy, h.hourly(e.hour()), 1e3))
		if h.cell.policy == learned {
			weights.Curves = append(weights.Curves, ofHours(learned, h.hourlyWeights(e.hour()), 1))
		}
	}
	rates := make([]float64, hours)
	for i := range rates {
		rates[i] = dayRate(i)
	}
	rate.Curves = []figures.Curve{ofHours("rate", rates, 1)}
	return r.chart("7", figures.Chart{
		Title: "HLB Figure 7: a day on the testbed",
		Notes: []string{r.farm(), "published: alike from 5:00 to 11:00; above, HLB and sed below lsq and gsq2"},
		X:     figures.Axis{Label: "hour of the day", Column: "hour", To: hours}, Panels: []figures.Panel{response, weights, rate},
	})
}

// farm states the scale of a picture.
func (r *Report) farm() string {
	e := r.experiment
	return fmt.Sprintf("ours: %d servers on virtual cores, 32 workers each, mean service %v, %v a run", e.Servers, e.Mean, e.For)
}

// chart draws panels; none without curves.
func (r *Report) chart(name string, c figures.Chart) ([]drawing, error) {
	var panels []figures.Panel
	for _, p := range c.Panels {
		if len(p.Curves) > 0 {
			panels = append(panels, p)
		}
	}
	if c.Panels = panels; len(panels) == 0 {
		return nil, nil // no run is claimed
	}
	figure, err := figures.NewChart(c)
	if err != nil {
		return nil, err
	}
	return []drawing{{"hlb-" + name, figure}}, nil
}

// offPeakSpread is how far the policies' means are apart while servers are idle, and when it is
// the peak: the worst over the best.
func (r *Report) spread(from, to int) string {
	e, worst, best := r.experiment, "", ""
	most, least := 0.0, math.Inf(1)
	c := dayCells(e)[0]
	for _, c.policy = range policies {
		h := r.find(c)
		if h == nil {
			continue
		}
		mean := stats.OrZero(stats.Summarize(h.hourly(e.hour())[from:to]).Mean)
		if mean > most {
			most, worst = mean, c.policy
		}
		if mean < least {
			least, best = mean, c.policy
		}
	}
	if worst == "" {
		return "–"
	}
	return fmt.Sprintf("%s %.0f ms, %s %.0f ms", best, least*1e3, worst, most*1e3)
}

func (r *Report) besideDay() []farmrun.Published {
	e, c := r.experiment, dayCells(r.experiment)[0]
	all := []farmrun.Published{
		farmrun.OfPaper("5:00 to 11:00, best and worst mean", "alike", r.spread(offPeak, onPeak)),
		farmrun.OfPaper("20:00, best and worst mean", "no number; HLB and sed best", r.spread(peakHour, peakHour+1)),
	}
	c.policy = learned
	if h := r.find(c); h != nil {
		w := h.hourlyWeights(e.hour())
		all = append(all, farmrun.OfPaper("HLB's weights, 2 cores ÷ 1, at 8:00 and 20:00", "no number; larger at the peak, below 2", fmt.Sprintf("%.2f and %.2f", w[8], w[peakHour])))
	}
	return all
}

func (r *Report) drawKinds(f figure) (all []drawing, err error) {
	for _, kind := range []struct {
		name, title string
		static      bool
	}{{"pages", "pages", false}, {"static", "static requests", true}} {
		var responses []figures.Responses
		for _, h := range r.of(f) {
			if took := h.taken(func(q request) bool { return q.static == kind.static }); len(took) > 0 {
				responses = append(responses, figures.Responses{Name: h.cell.policy, Seconds: took})
			}
		}
		if len(responses) == 0 {
			continue
		}
		figure, err := figures.CDF("HLB Figure "+f.name+": "+kind.title+", "+r.short(f), responses)
		if err != nil {
			return all, err
		}
		all = append(all, drawing{"hlb-" + f.name + "-" + kind.name, figure})
	}
	return all, nil
}

// short is the farm of a figure in its title.
func (r *Report) short(f figure) string {
	return fmt.Sprintf("%d servers, 2 LBs", r.experiment.servers(f.cells(r.experiment)[0]))
}

// p90Of is that of a cell's requests of one kind; NaN: there is none.
func (r *Report) p90Of(c cell, static bool) float64 {
	h := r.find(c)
	if h == nil {
		return math.NaN()
	}
	return stats.Summarize(h.taken(func(q request) bool { return q.static == static })).P90
}

func (r *Report) besideKinds() (all []farmrun.Published) {
	c := dayCells(r.experiment)[0]
	for _, b := range []struct {
		kind      string
		static    bool
		than      string
		published string
	}{
		{"pages", false, "lsq", "23.66 %"}, {"pages", false, "gsq2", "26.43 %"}, {"pages", false, "sed", "the same"},
		{"static", true, "sed", "38.22 %"},
	} {
		ours, other := c, c
		ours.policy, other.policy = learned, b.than
		if ratio := r.p90Of(ours, b.static) / r.p90Of(other, b.static); !math.IsNaN(ratio) {
			all = append(all, farmrun.OfPaper(fmt.Sprintf("%s: p90 of HLB less than that of %s", b.kind, b.than), b.published, farmrun.Percent(1-ratio)))
		}
	}
	return all
}
