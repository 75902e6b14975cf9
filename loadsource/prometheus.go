package loadsource

import (
	"bytes"
	"fmt"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"proffer/topo"
)

func openPrometheus(o *topo.Offering) (Source, error) {
	want, err := topo.ParseMetric(o.Of)
	if err != nil {
		return nil, fmt.Errorf("load_of %q: %w", o.Of, err)
	}
	ask, release := overHTTP(o.From)
	return answered{ask, func(answer []byte) (Reading, error) { return parsePrometheus(answer, want) }, release}, nil
}

// mostSeries bounds the series of a metric, as each takes some hundred bytes of memory.
const mostSeries = 10_000

// parsePrometheus adds up the series of a metric, in Prometheus' text format.
func parsePrometheus(answer []byte, want topo.Metric) (Reading, error) {
	lines, err := linesOf(answer, want.Name)
	if err != nil {
		return Reading{}, err
	}
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(bytes.NewReader(lines))
	if err != nil {
		return Reading{}, fmt.Errorf("the metric %s: %w", want.Name, err)
	}
	family := families[want.Name]
	if family == nil {
		return Reading{}, fmt.Errorf("the exporter has no metric %s", want.Name)
	}
	sum, found := 0.0, false
	for _, series := range family.Metric {
		if !has(series, want.Labels) {
			continue
		}
		switch {
		case series.Gauge != nil:
			sum += series.Gauge.GetValue()
		case series.Untyped != nil:
			sum += series.Untyped.GetValue()
		default:
			return Reading{}, fmt.Errorf("the metric %s is no gauge but a %s", want.Name, family.GetType())
		}
		found = true
	}
	if !found {
		return Reading{}, fmt.Errorf("no series of the metric %s has the labels", want.Name)
	}
	busy, err := count(sum)
	return Reading{Busy: busy}, err
}

// has reports whether a series has labels.
func has(series *dto.Metric, want map[string]string) bool {
	matched := 0
	for _, l := range series.Label {
		if value, ok := want[l.GetName()]; ok && value == l.GetValue() {
			matched++
		}
	}
	return matched == len(want)
}

// linesOf are the lines of an answer about a metric: its series, the types of its family, and the parts
// of a histogram. The others are not parsed.
func linesOf(answer []byte, metric string) (lines []byte, err error) {
	found := 0
	for line := range bytes.Lines(answer) {
		if !isAbout(bytes.TrimLeft(line, " \t"), metric) {
			continue
		}
		if found++; found > mostSeries {
			return nil, fmt.Errorf("the metric %s has more than %d series", metric, mostSeries)
		}
		lines = append(lines, line...)
	}
	return append(lines, '\n'), nil
}

// isAbout reports whether a line is about a metric.
func isAbout(line []byte, metric string) bool {
	if comment, is := bytes.CutPrefix(line, []byte("#")); is {
		kind, rest := token(comment)
		name, _ := token(rest)
		return kind == "TYPE" && (name == metric || isPart(name, metric) || isPart(metric, name))
	}
	if bytes.HasPrefix(line, []byte("{")) { // then the name is a label
		return bytes.Contains(line, []byte(metric))
	}
	name, _ := token(line)
	return name == metric || isPart(name, metric)
}

// token cuts the first word of a line, and blanks before it.
func token(line []byte) (word string, rest []byte) {
	line = bytes.TrimLeft(line, " \t")
	end := bytes.IndexAny(line, "{ \t\r\n")
	if end < 0 {
		return "", nil
	}
	return string(line[:end]), line[end:]
}

// isPart reports whether a name is that of a part of a histogram or summary.
func isPart(name, family string) bool {
	return name == family+"_bucket" || name == family+"_sum" || name == family+"_count"
}
