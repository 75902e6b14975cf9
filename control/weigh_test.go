package control

import (
	"slices"
	"testing"
	"time"

	"proffer/topo"
	"proffer/weights"
)

func pool(stated ...int) *topo.LB {
	svc := topo.Service{Name: "web"}
	for _, w := range stated {
		svc.Servers = append(svc.Servers, topo.Server{Weight: w})
	}
	svc.History = []topo.Version{{Servers: slices.Clone(svc.Servers)}}
	return &topo.LB{Services: []topo.Service{svc}}
}

func weightsOf(servers []topo.Server) (out []int) {
	for _, s := range servers {
		out = append(out, s.Weight)
	}
	return out
}

func TestConfiguredWeightsStayAsTheyAre(t *testing.T) {
	cfg := pool(1, 0, 65535, 7)
	got := weightsOf(Weighed(cfg, time.Second, Configured).Services[0].Servers)
	if !slices.Equal(got, []int{1, 0, 65535, 7}) {
		t.Errorf("weights %v, want the configured ones", got)
	}
}

// TestWeighersDriveTables: the simulators' weighers give a table's whole numbers,
// and neither the configuration nor an earlier pool changes.
func TestWeighersDriveTables(t *testing.T) {
	cfg := pool(5, 5, 5)
	filter := weights.NewFilter(3, weights.PublishedFilter())
	pid := weights.NewPID(3, weights.PublishedGains())
	pid.Leave(2)
	pid.Weights(0)
	for server := range 2 {
		filter.Observe(1, weights.Sample{Server: server, Value: float64(100 * (server + 1))})
		pid.Observe(1, weights.Sample{Server: server, Value: 0.1 * float64(server+1)})
	}
	for name, w := range map[string]weights.Weigher{"filter": filter, "pid": pid} {
		svc := Weighed(cfg, time.Second, func(*topo.Service) weights.Weigher { return w }).Services[0]
		got := weightsOf(svc.Servers)
		if got[0] != maxWeight || got[1] <= 0 || got[1] >= got[0] || (got[2] == 0) != (name == "pid") {
			t.Errorf("%s: weights %v, want %d for server 0, fewer for 1", name, got, maxWeight)
		}
		if past := weightsOf(svc.History[0].Servers); !slices.Equal(past, []int{5, 5, 5}) {
			t.Errorf("%s: weights %v of the earlier pool, want its own", name, past)
		}
	}
	if !slices.Equal(weightsOf(cfg.Services[0].Servers), []int{5, 5, 5}) {
		t.Error("the configuration itself changed")
	}
}

func TestOnlyZeroDrains(t *testing.T) {
	if got := whole([]float64{0, 1e-9, 0.5}); !slices.Equal(got, []int{0, 1, maxWeight}) {
		t.Errorf("whole weights %v", got)
	}
}
