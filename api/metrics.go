package api

import (
	"fmt"
	"io"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
)

// metric is a metric of a service's load.
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

// learnedMetric is a metric of a server of a service that learns.
type learnedMetric struct {
	name, help string
	of         func(*LearnedStatus) (value float64, known bool)
}

var learnedMetrics = []learnedMetric{
	{"proffer_server_established_flows", "Established flows that count at the server.",
		func(s *LearnedStatus) (float64, bool) { return float64(s.Established), true }},
	{"proffer_server_embryonic_flows", "Embryonic flows of the server.",
		func(s *LearnedStatus) (float64, bool) { return float64(s.Embryonic), true }},
	{"proffer_server_flow_seconds", "Mean duration of the server's flows.",
		func(s *LearnedStatus) (float64, bool) {
			if s.Mean == nil {
				return 0, false
			}
			return *s.Mean, true
		}},
	{"proffer_server_filter", "The same, smoothed, beside the average of all servers.",
		func(s *LearnedStatus) (float64, bool) { return s.Filter, true }},
	{"proffer_server_weight", "Weight beside the other servers of the service: learned, polled or configured.",
		func(s *LearnedStatus) (float64, bool) { return s.Weight, true }},
}

// healthMetrics are written for each server of an LB, over all services.
var healthMetrics = []struct {
	name, help string
	kind       dto.MetricType
	of         func(*HealthStatus) float64
}{
	{"proffer_server_down", "1: the server answers nothing, and gets no new flows but probes.", dto.MetricType_GAUGE,
		func(s *HealthStatus) float64 {
			if s.State == "down" {
				return 1
			}
			return 0
		}},
	{"proffer_server_offered_total", "New connections that were offered to the server first.", dto.MetricType_COUNTER,
		func(s *HealthStatus) float64 { return float64(s.Offered) }},
	{"proffer_server_answered_total", "New connections that the server answered or passed on.", dto.MetricType_COUNTER,
		func(s *HealthStatus) float64 { return float64(s.Answered) }},
	{"proffer_server_repeated_total", "SYNs to the server that came again.", dto.MetricType_COUNTER,
		func(s *HealthStatus) float64 { return float64(s.Repeated) }},
	{"proffer_server_unreachable_total", "ICMP errors about packets to the server.", dto.MetricType_COUNTER,
		func(s *HealthStatus) float64 { return float64(s.Unreachable) }},
}

// writeHealth writes how servers answer.
func writeHealth(w io.Writer, servers []HealthStatus) error {
	for _, m := range healthMetrics {
		var all []*dto.Metric
		for i := range servers {
			all = append(all, sample(m.kind, m.of(&servers[i]), "server", servers[i].Name))
		}
		if err := writeFamily(w, m.name, m.help, m.kind, all); err != nil {
			return err
		}
	}
	return nil
}

// writeMetrics writes a status in the text format of Prometheus. A value that is not known is left out.
func writeMetrics(w io.Writer, s *Status) error {
	for _, m := range loadMetrics {
		var all []*dto.Metric
		for _, svc := range s.Services {
			if svc.Load == nil {
				continue
			}
			if value, known := m.of(svc.Load); known {
				all = append(all, sample(m.kind, value, "service", svc.Name, "vip", svc.VIP))
			}
		}
		if err := writeFamily(w, m.name, m.help, m.kind, all); err != nil {
			return err
		}
	}
	for _, m := range learnedMetrics {
		var all []*dto.Metric
		for _, svc := range s.Services {
			if svc.Learning == nil {
				continue
			}
			for i := range svc.Learning.Servers {
				server := &svc.Learning.Servers[i]
				if value, known := m.of(server); known {
					all = append(all, sample(dto.MetricType_GAUGE, value, "service", svc.Name, "vip", svc.VIP, "server", server.Name))
				}
			}
		}
		if err := writeFamily(w, m.name, m.help, dto.MetricType_GAUGE, all); err != nil {
			return err
		}
	}
	if err := writeEdge(w, s.Edge); err != nil {
		return err
	}
	if err := writeLog(w, s.Log); err != nil {
		return err
	}
	return writeHealth(w, s.Servers)
}

func writeLog(w io.Writer, l *LogStatus) error {
	if l == nil {
		return nil
	}
	return writeFamily(w, "proffer_log_lines_lost_total", "Lines of the daemon's log that its reader did not take in time, or that could not be written.",
		dto.MetricType_COUNTER, []*dto.Metric{sample(dto.MetricType_COUNTER, float64(l.Lost))})
}

func writeFamily(w io.Writer, name, help string, kind dto.MetricType, all []*dto.Metric) error {
	if len(all) == 0 {
		return nil
	}
	family := &dto.MetricFamily{Name: &name, Help: &help, Type: &kind, Metric: all}
	if _, err := expfmt.MetricFamilyToText(w, family); err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	return nil
}

// sample is a value with labels, of which each name precedes its value.
func sample(kind dto.MetricType, value float64, labels ...string) *dto.Metric {
	s := &dto.Metric{}
	for i := 0; i < len(labels); i += 2 {
		s.Label = append(s.Label, &dto.LabelPair{Name: &labels[i], Value: &labels[i+1]})
	}
	if kind == dto.MetricType_COUNTER {
		s.Counter = &dto.Counter{Value: &value}
	} else {
		s.Gauge = &dto.Gauge{Value: &value}
	}
	return s
}
