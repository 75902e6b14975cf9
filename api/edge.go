package api

import (
	"io"
	"strconv"

	dto "github.com/prometheus/client_model/go"
)

// EdgeStatus is the cores of an edge LB's nodes, or of a datapath node.
type EdgeStatus struct {
	Balancer       string          `json:"balancer,omitempty"` // of an LB
	Wishes         uint64          `json:"wishes"`             // for another node, as the cores were full
	Replica        *ReplicaStatus  `json:"replica,omitempty"`  // of an LB with a command that starts nodes
	Cores          []CoreStatus    `json:"cores"`
	Costs          []CostStatus    `json:"costs,omitempty"`
	Patterns       []PatternStatus `json:"patterns,omitempty"`        // of a node with an IDS
	RefusedReports uint64          `json:"refused_reports,omitempty"` // of nodes, without a valid tag or malformed

	Talkers []TalkerStatus `json:"talkers,omitempty"` // of an LB: the flows with the most packets of late
}

// ReplicaStatus is the command that starts another node.
type ReplicaStatus struct {
	Running  bool   `json:"running"`
	Starts   uint64 `json:"starts"`
	Failures uint64 `json:"failures"`
	Error    string `json:"error,omitempty"` // of the last run that ended
}

// CostStatus is the cost of a packet of a service at a node.
type CostStatus struct {
	Node        string  `json:"node"`
	Service     int     `json:"service"`
	Nanoseconds float64 `json:"nanoseconds"`
	From        string  `json:"from"` // stated, measured, average, assumed
}

// PatternStatus is a pattern of a node's IDS.
type PatternStatus struct {
	Service int    `json:"service"`
	Pattern string `json:"pattern"` // bytes that are no ASCII as \xNN
	Packets uint64 `json:"packets"` // with it, since the start
}

// TalkerStatus is a flow, by a sample of its packets. It has no metric: flows come and go.
type TalkerStatus struct {
	Protocol         string  `json:"protocol"`
	Client           string  `json:"client"` // address and port, or an echo's identifier
	World            string  `json:"world"`
	Node             string  `json:"node"`
	Core             int     `json:"core"`
	Service          int     `json:"service"`
	PacketsPerSecond float64 `json:"packets_per_second"` // of both directions
	BitsPerSecond    float64 `json:"bits_per_second"`
	Share            float64 `json:"share"` // of all packets
}

// CoreStatus is a core of a datapath node; the node leaves out state, load, weight and flows.
type CoreStatus struct {
	Node     string   `json:"node"`
	Core     int      `json:"core"`
	State    string   `json:"state,omitempty"`         // of its node: "answers" or "down"; "absent": its node has fewer cores
	Load     *float64 `json:"load,omitempty"`          // as predicted; 1: the core works all the time
	Measured *float64 `json:"measured_load,omitempty"` // as its node measured it
	Weight   *float64 `json:"weight,omitempty"`        // for new flows; 1 is the average, 0 none
	Packets  uint64   `json:"packets"`                 // since the start
	Flows    *uint64  `json:"flows,omitempty"`         // begun since the start

	Virtual *VirtualStatus `json:"virtual,omitempty"` // of a node with virtual cores
}

// VirtualStatus is the work of a virtual core since the start, until an instant of the machine's
// monotonic clock.
type VirtualStatus struct {
	At      int64  `json:"at_ns"`
	Busy    int64  `json:"busy_ns"`
	Stayed  int64  `json:"stayed_ns"` // of the served packets together, from arrival to the end of service
	Served  uint64 `json:"served"`
	Dropped uint64 `json:"dropped"`
}

// coreMetrics are written for each core.
var coreMetrics = []struct {
	name, help string
	kind       dto.MetricType
	of         func(*CoreStatus) (value float64, known bool)
}{
	{"proffer_core_load", "Load of the core as predicted, 1 if it works all the time.", dto.MetricType_GAUGE,
		func(c *CoreStatus) (float64, bool) { return known(c.Load) }},
	{"proffer_core_measured_load", "Load of the core as its node measured it.", dto.MetricType_GAUGE,
		func(c *CoreStatus) (float64, bool) { return known(c.Measured) }},
	{"proffer_core_weight", "Weight of the core for new flows.", dto.MetricType_GAUGE,
		func(c *CoreStatus) (float64, bool) { return known(c.Weight) }},
	{"proffer_core_down", "1 if the core's node answers no probe.", dto.MetricType_GAUGE,
		func(c *CoreStatus) (float64, bool) {
			if c.State == "down" {
				return 1, true
			}
			return 0, c.State != ""
		}},
	{"proffer_core_packets_total", "Packets of the core.", dto.MetricType_COUNTER,
		func(c *CoreStatus) (float64, bool) { return float64(c.Packets), true }},
	{"proffer_core_flows_total", "Flows begun at the core.", dto.MetricType_COUNTER,
		func(c *CoreStatus) (float64, bool) { return known(c.Flows) }},
}

func known[T uint64 | float64](v *T) (float64, bool) {
	if v == nil {
		return 0, false
	}
	return float64(*v), true
}

// edgeMetrics are written once, by an LB.
var edgeMetrics = []struct {
	name, help string
	of         func(*EdgeStatus) (value uint64, known bool)
}{
	{"proffer_replica_wanted_total", "Wishes for another node, as the cores were full.",
		func(e *EdgeStatus) (uint64, bool) { return e.Wishes, true }},
	{"proffer_replica_starts_total", "Runs of the command that starts a node.",
		func(e *EdgeStatus) (uint64, bool) { return e.replica().Starts, e.Replica != nil }},
	{"proffer_replica_failures_total", "Failed runs of the command that starts a node.",
		func(e *EdgeStatus) (uint64, bool) { return e.replica().Failures, e.Replica != nil }},
	{"proffer_refused_reports_total", "Reports of nodes without a valid tag, or malformed.",
		func(e *EdgeStatus) (uint64, bool) { return e.RefusedReports, true }},
}

func (e *EdgeStatus) replica() ReplicaStatus {
	if e.Replica == nil {
		return ReplicaStatus{}
	}
	return *e.Replica
}

// writeEdge writes the cores of an edge LB or a node, and the LB's own numbers.
func writeEdge(w io.Writer, e *EdgeStatus) error {
	if e == nil {
		return nil
	}
	for _, m := range coreMetrics {
		var all []*dto.Metric
		for i := range e.Cores {
			c := &e.Cores[i]
			if value, known := m.of(c); known {
				all = append(all, sample(m.kind, value, "node", c.Node, "core", strconv.Itoa(c.Core)))
			}
		}
		if err := writeFamily(w, m.name, m.help, m.kind, all); err != nil {
			return err
		}
	}
	var patterns []*dto.Metric
	for _, p := range e.Patterns {
		patterns = append(patterns, sample(dto.MetricType_COUNTER, float64(p.Packets), "service", strconv.Itoa(p.Service), "pattern", p.Pattern))
	}
	if err := writeFamily(w, "proffer_pattern_packets_total", "Packets with a pattern of the IDS.", dto.MetricType_COUNTER, patterns); err != nil {
		return err
	}
	for _, m := range edgeMetrics {
		value, known := m.of(e)
		if e.Balancer == "" || !known {
			continue
		}
		one := []*dto.Metric{sample(dto.MetricType_COUNTER, float64(value))}
		if err := writeFamily(w, m.name, m.help, dto.MetricType_COUNTER, one); err != nil {
			return err
		}
	}
	return nil
}
