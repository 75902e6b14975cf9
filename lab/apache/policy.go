package apache

import (
	"math"
	"slices"
	"sync"
	"time"

	"proffer/lab/farmrun"
	"proffer/lab/testbed"
	"proffer/policy"
	"proffer/topo"
)

// The centralized policies of 6LB §VI-B.7. The client plays their load balancer: every
// server has a service of its own, and the client chooses between them.
const (
	roundRobin = "rr"
	feedback   = "wrr-feedback"

	centralPort = 8001 // of the first server's own service
	pollEvery   = 200 * time.Millisecond
)

// central reports whether a policy is chosen by the client.
func central(name string) bool { return name == roundRobin || name == feedback }

// rounds is weighted round robin: each server gains its weight a turn, and the richest pays
// for it. With equal weights that is round robin.
type rounds struct {
	mu      sync.Mutex
	weights []float64
	credit  []float64
}

func newRounds(n int) *rounds {
	t := &rounds{weights: make([]float64, n), credit: make([]float64, n)}
	for i := range t.weights {
		t.weights[i] = 1
	}
	return t
}

// next is the server that has the next turn.
func (t *rounds) next() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	best, sum := 0, 0.0
	for i, w := range t.weights {
		t.credit[i] += w
		sum += w
		if t.credit[i] > t.credit[best] {
			best = i
		}
	}
	t.credit[best] -= sum
	return best
}

// weigh sets the weights by the servers' busy workers: 0.1 + 0.9·exp(−8(b/W)²).
func (t *rounds) weigh(busy []float64, workers int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for i, b := range busy {
		share := b / float64(workers)
		t.weights[i] = 0.1 + 0.9*math.Exp(-8*share*share)
	}
}

// poll weighs again every 200 ms until stop.
func (t *rounds) poll(busy func() []float64, workers int) (stop func()) {
	quit, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		tick := time.NewTicker(pollEvery)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				t.weigh(busy(), workers)
			case <-quit:
				return
			}
		}
	}()
	return func() { close(quit); <-ended }
}

// webPort is where server i listens.
func webPort(name string) func(i int) uint16 {
	if central(name) {
		return func(i int) uint16 { return centralPort + uint16(i) }
	}
	return func(int) uint16 { return testbed.Port }
}

// settings of the farm for a policy; a centralized one has a service of one server for each.
func (e Experiment) settings(bed *testbed.Bed, c cell) (farmrun.Settings, error) {
	s := farmrun.Settings{Workers: e.Workers, Cores: 1, Programs: e.Programs}
	if central(c.policy) {
		s.Policy = topo.Policy{Dispatch: topo.Single}
		s.LB = func(lb *topo.LB) { oneEach(lb, webPort(c.policy)) }
	} else {
		var err error
		if s.Policy, err = policy.Parse(c.policy); err != nil {
			return s, err
		}
	}
	s.Agent = func(n *testbed.Node, agent *topo.Agent) {
		o := &agent.Services[0]
		if central(c.policy) {
			o.Name, o.VIP.Port = n.Name, webPort(c.policy)(slices.Index(bed.Servers, n))
		}
		if !c.virtual {
			o.Measure, o.Source, o.From = topo.Page, topo.Apache, pidFile(bed, n)
		}
	}
	return s, nil
}

// oneEach gives every server a service of its own.
func oneEach(lb *topo.LB, port func(i int) uint16) {
	all := lb.Services[0]
	lb.Services = nil
	for i, server := range all.Servers {
		own := all
		own.Name, own.VIP.Port, own.Servers = server.Name, port(i), []topo.Server{server}
		lb.Services = append(lb.Services, own)
	}
}
