package storms

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"proffer/lab/tables"
)

// ForgeReport holds a Forge's results.
type ForgeReport struct {
	Packets     int               `json:"packets"`
	Signals     int               `json:"signals"`      // of them: forged or malformed SRv6
	Floods      int               `json:"floods"`       // of them: RSTs and FINs without SRv6
	Seen        uint64            `json:"seen"`         // signals that the daemons' programs counted
	ChangedMaps int               `json:"changed_maps"` // nodes with flow tables that the signals changed
	Delivered   uint64            `json:"delivered"`    // TCP segments that any kernel got of the signals
	Accepted    int               `json:"accepted"`     // connections that came of all
	Entries     int               `json:"entries"`      // flow table entries gained or lost by all
	Flows       int               `json:"flows"`        // that lived meanwhile
	Lost        int               `json:"lost"`         // of them
	Asking      int64             `json:"asking"`       // requests in progress afterwards, by the agents: none are
	Recounted   uint64            `json:"recounted"`    // counts of them that a recount had to set right
	Counters    map[string]uint64 `json:"counters"`     // of the signals
	Servers     int               `json:"servers"`
	Seed        uint64            `json:"seed"`
}

// signals books the effects of the signals.
func (r *ForgeReport) signals(before, after seen) {
	for name, sum := range before.maps {
		if after.maps[name] != sum {
			r.ChangedMaps++
		}
	}
	r.Delivered = after.segments - before.segments
	r.Counters = map[string]uint64{}
	for name, value := range after.counters {
		if added := value - before.counters[name]; added > 0 {
			r.Counters[name] = added
		}
		if strings.Contains(name, ".drop_") {
			r.Seen += value - before.counters[name]
		}
	}
}

// floods books the effects of all frames.
func (r *ForgeReport) floods(before, end seen) {
	r.Packets = r.Signals + r.Floods
	r.Accepted = end.accepted - before.accepted
	r.Entries = end.entries - before.entries
	r.Asking = int64(end.asking)
	r.Recounted = end.counters["agent.recounted"] - before.counters["agent.recounted"]
}

// JSON is the output of --json.
func (r *ForgeReport) JSON() any { return r }

// Holds is the promise: forged signals change nothing and reach no application, and RSTs
// and FINs by guesswork end nothing.
func (r *ForgeReport) Holds() error {
	var errs []error
	for _, c := range []struct {
		is   int64
		name string
	}{
		{int64(r.ChangedMaps), "nodes with flow tables that forged signals changed"},
		{int64(r.Delivered), "TCP segments of forged signals that came to a kernel"},
		{int64(r.Accepted), "connections accepted of forged frames"},
		{int64(r.Entries), "flow table entries more (or, below 0, fewer) than before"},
		{int64(r.Lost), "live flows lost"},
		{r.Asking, "requests in progress though none is"},
		{int64(r.Recounted), "counts of requests in progress that were wrong"},
	} {
		if c.is != 0 {
			errs = append(errs, fmt.Errorf("%d %s, want 0", c.is, c.name))
		}
	}
	if r.Seen*2 < uint64(r.Signals) {
		errs = append(errs, fmt.Errorf("only %d of %d forged signals were seen to be dropped: this run proves little", r.Seen, r.Signals))
	}
	return errors.Join(errs...)
}

// Print writes it as text.
func (r *ForgeReport) Print(w io.Writer) error {
	fmt.Fprintf(w, `%d frames to %d servers and their LBs, the domain's edge open, seed %d

signals       %d forged or malformed, of which %d were counted and dropped by our programs
              %d nodes' flow tables changed, %d TCP segments came to a kernel
RST and FIN   %d
afterwards    %d connections accepted, %d entries gained or lost, %d of %d live flows lost, %d requests in progress

`, r.Packets, r.Servers, r.Seed, r.Signals, r.Seen, r.ChangedMaps, r.Delivered, r.Floods, r.Accepted, r.Entries, r.Lost, r.Flows, r.Asking)
	return r.counters().Print(w)
}

// counters are the counts of the signals, by name.
func (r *ForgeReport) counters() *tables.Table {
	t := tables.Left("counter", "signals")
	for _, name := range slices.Sorted(maps.Keys(r.Counters)) {
		t.Add(name, r.Counters[name])
	}
	return t
}

// Files are the counters.
func (r *ForgeReport) Files() []tables.File {
	return []tables.File{r.counters().CSVFile("forge-counters.csv")}
}
