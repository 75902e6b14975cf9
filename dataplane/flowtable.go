package dataplane

import (
	"fmt"
	"os"

	"github.com/cilium/ebpf"

	"proffer/policy"
	"proffer/topo"
)

// The LB's table of flows (bpf/lb/lines.h).
const (
	lineEntries = 4
	lineBytes   = 64
	// fullPercent of the entries are used when the table holds what it was made
	// for: up to there hardly ever a flow finds no place.
	fullPercent = 80
)

// linesFor is how many lines hold so many flows.
func linesFor(flows int) uint32 {
	return uint32((flows*100 + fullPercent*lineEntries - 1) / (fullPercent * lineEntries))
}

// sizeFlows makes the table as large as cfg wants it.
func (l *LB) sizeFlows(spec *ebpf.CollectionSpec, cfg *topo.LB) error {
	l.lines = linesFor(cfg.Flows.Entries)
	spec.Maps[lbMapFlows].MaxEntries = l.lines
	if err := spec.Variables["lines"].Set(l.lines); err != nil {
		return fmt.Errorf("set the size of the flow table: %w", err)
	}
	if err := spec.Variables["flow_key"].Set(policy.NewDigestKey(cfg.CandidateKey)); err != nil {
		return fmt.Errorf("set the key of flows: %w", err)
	}
	return nil
}

// fits tells whether there is memory for the table, unless it is there.
func (l *LB) fits(flows int, adopted bool) error {
	if adopted {
		return nil
	}
	return memoryLeft(os.DirFS("/")).fits(flows, l.FlowTableBytes())
}

// FlowTableBytes is the memory that the table of flows takes.
func (l *LB) FlowTableBytes() uint64 { return uint64(l.lines) * lineBytes }
