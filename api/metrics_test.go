package api

import (
	"context"
	"io"
	"net"
	"net/http"
	"testing"
)

// TestMetrics: GET /metrics has each service's cores, busy count, idle cores, answers and service
// time, and leaves out an unknown value.
func TestMetrics(t *testing.T) {
	path := socket(t)
	busy, idle := uint32(3), 0.5
	answering(t, path, func() (Status, error) {
		return Status{Log: &LogStatus{Lost: 5}, Services: []ServiceStatus{
			{Name: "web", VIP: "[2001:db8:f::1]:80", Load: &LoadStatus{Cores: 3.5, Busy: &busy, Idle: &idle, Answers: 12,
				ServiceTime: &ServiceTimeStatus{Mean: 0.025, Error: 0.125, Answers: 10}}},
			{Name: `a"b`, VIP: "192.0.2.1:80", Load: &LoadStatus{Cores: 2}},
			{Name: "of an LB", VIP: "192.0.2.2:80", Learning: &LearningStatus{Servers: []LearnedStatus{
				{Name: "s1", Established: 3, Embryonic: 2, Mean: &idle, Filter: 1.25, Weight: 0.375},
				{Name: "s2", Filter: 1, Weight: 0.625},
			}}, Servers: []ServerStatus{{Name: "s1", State: "answers"}, {Name: "s2", State: "down"}, {Name: "s3", State: "unknown"}}},
			{Name: "another", VIP: "192.0.2.3:80", Servers: []ServerStatus{{Name: "s1", State: "answers"}}},
		}, Servers: []HealthStatus{
			{Name: "s1", State: "answers", Offered: 9, Answered: 8, Repeated: 1},
			{Name: "s2", State: "down", Offered: 7, Repeated: 4, Unreachable: 2},
		}}, nil
	})
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true,
		DialContext: func(context.Context, string, string) (net.Conn, error) { return net.Dial("unix", path) }}}
	answer, err := client.Get("http://proffer/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	got, err := io.ReadAll(answer.Body)
	want := `# HELP proffer_service_cores CPUs that the service's processes may use.
# TYPE proffer_service_cores gauge
proffer_service_cores{service="web",vip="[2001:db8:f::1]:80"} 3.5
proffer_service_cores{service="a\"b",vip="192.0.2.1:80"} 2
# HELP proffer_service_busy_requests Requests in progress, by the load measure in use.
# TYPE proffer_service_busy_requests gauge
proffer_service_busy_requests{service="web",vip="[2001:db8:f::1]:80"} 3
# HELP proffer_service_idle_cores Cores without a request.
# TYPE proffer_service_idle_cores gauge
proffer_service_idle_cores{service="web",vip="[2001:db8:f::1]:80"} 0.5
# HELP proffer_service_answers_total Requests answered.
# TYPE proffer_service_answers_total counter
proffer_service_answers_total{service="web",vip="[2001:db8:f::1]:80"} 12
proffer_service_answers_total{service="a\"b",vip="192.0.2.1:80"} 0
# HELP proffer_service_time_seconds Mean time that a request takes without queueing.
# TYPE proffer_service_time_seconds gauge
proffer_service_time_seconds{service="web",vip="[2001:db8:f::1]:80"} 0.025
# HELP proffer_service_time_relative_error Relative standard error of proffer_service_time_seconds.
# TYPE proffer_service_time_relative_error gauge
proffer_service_time_relative_error{service="web",vip="[2001:db8:f::1]:80"} 0.125
# HELP proffer_server_established_flows Established flows that count at the server.
# TYPE proffer_server_established_flows gauge
proffer_server_established_flows{service="of an LB",vip="192.0.2.2:80",server="s1"} 3
proffer_server_established_flows{service="of an LB",vip="192.0.2.2:80",server="s2"} 0
# HELP proffer_server_embryonic_flows Embryonic flows of the server.
# TYPE proffer_server_embryonic_flows gauge
proffer_server_embryonic_flows{service="of an LB",vip="192.0.2.2:80",server="s1"} 2
proffer_server_embryonic_flows{service="of an LB",vip="192.0.2.2:80",server="s2"} 0
# HELP proffer_server_flow_seconds Mean duration of the server's flows.
# TYPE proffer_server_flow_seconds gauge
proffer_server_flow_seconds{service="of an LB",vip="192.0.2.2:80",server="s1"} 0.5
# HELP proffer_server_filter The same, smoothed, beside the average of all servers.
# TYPE proffer_server_filter gauge
proffer_server_filter{service="of an LB",vip="192.0.2.2:80",server="s1"} 1.25
proffer_server_filter{service="of an LB",vip="192.0.2.2:80",server="s2"} 1
# HELP proffer_server_weight Weight beside the other servers of the service: learned, polled or configured.
# TYPE proffer_server_weight gauge
proffer_server_weight{service="of an LB",vip="192.0.2.2:80",server="s1"} 0.375
proffer_server_weight{service="of an LB",vip="192.0.2.2:80",server="s2"} 0.625
# HELP proffer_log_lines_lost_total Lines of the daemon's log that its reader did not take in time, or that could not be written.
# TYPE proffer_log_lines_lost_total counter
proffer_log_lines_lost_total 5
# HELP proffer_server_down 1: the server answers nothing, and gets no new flows but probes.
# TYPE proffer_server_down gauge
proffer_server_down{server="s1"} 0
proffer_server_down{server="s2"} 1
# HELP proffer_server_offered_total New connections that were offered to the server first.
# TYPE proffer_server_offered_total counter
proffer_server_offered_total{server="s1"} 9
proffer_server_offered_total{server="s2"} 7
# HELP proffer_server_answered_total New connections that the server answered or passed on.
# TYPE proffer_server_answered_total counter
proffer_server_answered_total{server="s1"} 8
proffer_server_answered_total{server="s2"} 0
# HELP proffer_server_repeated_total SYNs to the server that came again.
# TYPE proffer_server_repeated_total counter
proffer_server_repeated_total{server="s1"} 1
proffer_server_repeated_total{server="s2"} 4
# HELP proffer_server_unreachable_total ICMP errors about packets to the server.
# TYPE proffer_server_unreachable_total counter
proffer_server_unreachable_total{server="s1"} 0
proffer_server_unreachable_total{server="s2"} 2
`
	if err != nil || answer.StatusCode != http.StatusOK || string(got) != want {
		t.Errorf("%s, %v:\n%s", answer.Status, err, got)
	}
}
