package topo

import (
	"errors"
	"regexp"
	"strings"
)

// Metric selects series of a metric: those of its name that have the labels, and maybe others.
type Metric struct {
	Name   string
	Labels map[string]string
}

// ErrMetric refuses a text that selects no metric.
var ErrMetric = errors.New("is no metric")

var (
	metric = regexp.MustCompile(`^([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})?$`)
	label  = regexp.MustCompile(`^\s*([a-zA-Z_][a-zA-Z0-9_]*)\s*=\s*"([^"\\]*)"\s*(,|$)`)
)

// ParseMetric reads NAME or NAME{label="value",…}, as Prometheus writes them; a value has
// neither quotes nor backslashes.
func ParseMetric(s string) (Metric, error) {
	found := metric.FindStringSubmatch(s)
	if found == nil {
		return Metric{}, ErrMetric
	}
	m := Metric{Name: found[1], Labels: map[string]string{}}
	for rest := found[2]; strings.TrimSpace(rest) != ""; {
		l := label.FindStringSubmatch(rest)
		if l == nil {
			return Metric{}, ErrMetric
		}
		m.Labels[l[1]], rest = l[2], rest[len(l[0]):]
	}
	return m, nil
}
