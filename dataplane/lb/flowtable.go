package lb

import (
	"fmt"
	"os"

	"github.com/cilium/ebpf"

	"proffer/dataplane/internal/plane"
	"proffer/dataplane/objects"
	"proffer/policy"
	"proffer/topo"
)

// fullPercent of the entries are used when the table holds the flows that it was made
// for: up to that share hardly any flow finds no slot.
const fullPercent = 80

// linesFor is the number of lines that hold so many flows.
func linesFor(flows int) uint32 {
	return uint32((flows*100 + fullPercent*objects.LineEntries - 1) / (fullPercent * objects.LineEntries))
}

// sizeFlows makes the table as large as cfg wants it.
func (l *LB) sizeFlows(spec *ebpf.CollectionSpec, cfg *topo.LB) error {
	l.Lines = linesFor(cfg.Flows.Entries)
	spec.Maps[objects.LBMapFlows].MaxEntries = objects.TableElements(l.Lines)
	if err := spec.Variables["lines"].Set(l.Lines); err != nil {
		return fmt.Errorf("set the size of the flow table: %w", err)
	}
	if err := spec.Variables["flow_key"].Set(policy.NewDigestKey(cfg.CandidateKey)); err != nil {
		return fmt.Errorf("set the key of flows: %w", err)
	}
	return nil
}

// keepSize makes the table as large as an earlier daemon's that is adopted, which another size has to wait for.
func (l *LB) keepSize(spec *ebpf.CollectionSpec, elements uint32) error {
	if elements == spec.Maps[objects.LBMapFlows].MaxEntries {
		return nil
	}
	l.Lines = objects.TableLines(elements)
	spec.Maps[objects.LBMapFlows].MaxEntries = elements
	l.waits = fmt.Sprintf("the flow table has the size of before, as flows of the table before that one live on: "+
		"restart the daemon for the %d entries of flow_table when they have ended", l.FlowTable.Entries)
	if err := spec.Variables["lines"].Set(l.Lines); err != nil {
		return fmt.Errorf("set the size of the flow table: %w", err)
	}
	return nil
}

// fits returns an error if there is no memory for the table; an adopted table has its
// memory.
func (l *LB) fits(flows int, adopted bool) error {
	if adopted {
		return nil
	}
	template := uint64(0) // that the kernel wants for a moment, of a table of before
	if l.before != nil {
		template = l.before.Bytes()
	}
	return plane.MemoryLeft(os.DirFS("/")).Fits(flows, l.FlowTableBytes()+template)
}

// FlowTableBytes is the memory that the table of flows takes.
func (l *LB) FlowTableBytes() uint64 {
	return uint64(objects.TableElements(l.Lines)) * uint64(objects.LineBytes)
}
