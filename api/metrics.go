package api

import (
	"fmt"
	"io"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
)

// metric is one of a service's load.
type metric struct {
	name string
	kind dto.MetricType
	help string
	of   func(*LoadStatus) (value float64, known bool)
}

var loadMetrics = []metric{
	{"proffer_service_cores", dto.MetricType_GAUGE, "CPUs that the service's processes may use.",
		func(l *LoadStatus) (float64, bool) { return l.Cores, true }},
	{"proffer_service_busy_requests", dto.MetricType_GAUGE, "Requests in progress, by the load measure in use.",
		func(l *LoadStatus) (float64, bool) {
			if l.Busy == nil {
				return 0, false
			}
			return float64(*l.Busy), true
		}},
	{"proffer_service_idle_cores", dto.MetricType_GAUGE, "Cores without a request.",
		func(l *LoadStatus) (float64, bool) {
			if l.Idle == nil {
				return 0, false
			}
			return *l.Idle, true
		}},
	{"proffer_service_answers_total", dto.MetricType_COUNTER, "Requests answered.",
		func(l *LoadStatus) (float64, bool) { return float64(l.Answers), true }},
	{"proffer_service_time_seconds", dto.MetricType_GAUGE, "Mean time that a request takes without queueing.",
		serviceTime(func(s *ServiceTimeStatus) float64 { return s.Mean })},
	{"proffer_service_time_relative_error", dto.MetricType_GAUGE, "Relative standard error of proffer_service_time_seconds.",
		serviceTime(func(s *ServiceTimeStatus) float64 { return s.Error })},
}

func serviceTime(of func(*ServiceTimeStatus) float64) func(*LoadStatus) (float64, bool) {
	return func(l *LoadStatus) (float64, bool) {
		if l.ServiceTime == nil {
			return 0, false
		}
		return of(l.ServiceTime), true
	}
}

// writeMetrics writes a status in the text format of Prometheus. A value that is not known is left out.
func writeMetrics(w io.Writer, s *Status) error {
	for _, m := range loadMetrics {
		family := &dto.MetricFamily{Name: &m.name, Help: &m.help, Type: &m.kind}
		for _, svc := range s.Services {
			if svc.Load == nil {
				continue
			}
			if value, known := m.of(svc.Load); known {
				family.Metric = append(family.Metric, m.sample(svc.Name, svc.VIP, value))
			}
		}
		if len(family.Metric) == 0 {
			continue
		}
		if _, err := expfmt.MetricFamilyToText(w, family); err != nil {
			return fmt.Errorf("write %s: %w", m.name, err)
		}
	}
	return nil
}

func (m *metric) sample(service, vip string, value float64) *dto.Metric {
	keys := []string{"service", "vip"}
	s := &dto.Metric{Label: []*dto.LabelPair{{Name: &keys[0], Value: &service}, {Name: &keys[1], Value: &vip}}}
	if m.kind == dto.MetricType_COUNTER {
		s.Counter = &dto.Counter{Value: &value}
	} else {
		s.Gauge = &dto.Gauge{Value: &value}
	}
	return s
}
