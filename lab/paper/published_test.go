package paper

import (
	"math"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// TestPublishedIsDrawn: values that the papers state are in the figure and in its
// legend, not only in its notes.
func TestPublishedIsDrawn(t *testing.T) {
	list, err := Named([]string{"srlb-2", "hlb-10", "hlb-12b", "hlb-14", "6lb-10a", "6lb-11a"})
	if err != nil {
		t.Fatal(err)
	}
	dir := draw(t, list)
	for _, c := range []struct {
		figure, series, x, column string
		ours                      string  // the curve that the value is stated relative to
		times                     float64 // of it, or the value itself
	}{
		{"srlb-2", "published: single ÷ 2.3", "0.88", "mean_response_time_s", "single", 1 / 2.3},
		{"6lb-10a", "published: single ÷ 2.3", "0.87", "mean_response_time_s", "single", 1 / 2.3},
		{"6lb-10a", "published: single", "0.71", "mean_response_time_s", "", 0.58},
		{"6lb-11a", "published: 40 servers, 0.58 s", "40", "mean_response_time_s", "", 0.58},
		{"hlb-10", "published: HLB, 24.64 % below lsq", "0.885", "p90_s", "lsq", 1 - 0.2464},
		{"hlb-10", "published: HLB, 25.59 % below sed", "0.885", "p90_s", "sed", 1 - 0.2559},
		{"hlb-12b", "published: sed", "90 %, 1:4", "requests_to_second_percent", "", 100 * 12.14 / 13.14},
		{"hlb-14", "published: sed, M = 8", "0.9", "sed_requests_to_strong_percent", "", 74.2},
	} {
		want := c.times
		if c.ours != "" {
			want *= number(t, dir, c.figure, c.ours, c.x, c.column)
		}
		if got := number(t, dir, c.figure, c.series, c.x, c.column); math.Abs(got/want-1) > 1e-6 {
			t.Errorf("%s, %s at %s: drawn %v, want %v", c.figure, c.series, c.x, got, want)
		}
	}
	for _, f := range list {
		svg := string(read(t, filepath.Join(dir, f.Name+".svg")))
		if !strings.Contains(svg, ">published") {
			t.Errorf("%s: no entry of the legend begins with published", f.Name)
		}
	}
}

// TestErrorBars: what a figure's notes promise, each curve of ours has.
func TestErrorBars(t *testing.T) {
	t.Parallel()
	list, err := Named([]string{"6lb-10a", "6lb-11a", "6lb-11e", "srlb-2", "hlb-10", "hlb-12a", "hlb-12b", "hlb-13", "hlb-14", "hlb-17", "hlb-19", "hlb-22"})
	if err != nil {
		t.Fatal(err)
	}
	dir := draw(t, list)
	for _, f := range list {
		with, all := map[string]bool{}, map[string]bool{}
		rows := csvRows(t, read(t, filepath.Join(dir, f.Name+".csv")))
		for _, row := range rows[1:] {
			if strings.HasPrefix(row[0], "published") || strings.HasPrefix(row[0], "model") || row[0] == "single, 48 servers" {
				continue
			}
			all[row[0]] = true
			for i, column := range rows[0] {
				half, err := strconv.ParseFloat(row[i], 64)
				if strings.HasSuffix(column, "_ci95_half") && err == nil && half > 0 {
					with[row[0]] = true
				}
			}
		}
		for name := range all {
			if !with[name] {
				t.Errorf("%s: %s has no error bar", f.Name, name)
			}
		}
		if svg := string(read(t, filepath.Join(dir, f.Name+".svg"))); !strings.Contains(svg, "error bars") {
			t.Errorf("%s does not say what its error bars are", f.Name)
		}
	}
}
