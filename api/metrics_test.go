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
		return Status{Services: []ServiceStatus{
			{Name: "web", VIP: "[2001:db8:f::1]:80", Load: &LoadStatus{Cores: 3.5, Busy: &busy, Idle: &idle, Answers: 12,
				ServiceTime: &ServiceTimeStatus{Mean: 0.025, Error: 0.125, Answers: 10}}},
			{Name: `a"b`, VIP: "192.0.2.1:80", Load: &LoadStatus{Cores: 2}},
			{Name: "of an LB", VIP: "192.0.2.2:80"},
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
`
	if err != nil || answer.StatusCode != http.StatusOK || string(got) != want {
		t.Errorf("%s, %v:\n%s", answer.Status, err, got)
	}
}
