package responder

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
)

// NetstatPath shows the counters of the calling thread's network namespace,
// where /proc/net would show those of the process's first thread.
const NetstatPath = "/proc/thread-self/net/netstat"

// Drops are the refusals that no client sees as an error: since Linux drops SYNs
// silently when the accept queue is full, "0 resets" means little without them.
type Drops struct {
	ListenDrops     uint64 // SYNs and ACKs that a listener threw away
	ListenOverflows uint64 // of those, because its accept queue was full
	SYNRetransmits  uint64 // SYNs and SYN-ACKs sent again
}

// Since returns the drops after before.
func (d Drops) Since(before Drops) Drops {
	return Drops{
		ListenDrops:     d.ListenDrops - before.ListenDrops,
		ListenOverflows: d.ListenOverflows - before.ListenOverflows,
		SYNRetransmits:  d.SYNRetransmits - before.SYNRetransmits,
	}
}

// ReadDrops reads the counters from path, normally NetstatPath.
func ReadDrops(path string) (Drops, error) {
	f, err := os.Open(path)
	if err != nil {
		return Drops{}, fmt.Errorf("read drops: %w", err)
	}
	defer f.Close()
	counters, err := tcpExt(f)
	if err != nil {
		return Drops{}, fmt.Errorf("read drops from %s: %w", path, err)
	}
	var d Drops
	for name, counter := range map[string]*uint64{
		"ListenDrops":     &d.ListenDrops,
		"ListenOverflows": &d.ListenOverflows,
		"TCPSynRetrans":   &d.SYNRetransmits,
	} {
		if *counter, err = parseCounter(counters, name); err != nil {
			return Drops{}, fmt.Errorf("read drops from %s: %w", path, err)
		}
	}
	return d, nil
}

func parseCounter(counters map[string]string, name string) (uint64, error) {
	text, ok := counters[name]
	if !ok {
		return 0, fmt.Errorf("no counter TcpExt %s", name)
	}
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("counter TcpExt %s: %w", name, err)
	}
	return n, nil
}

// tcpExt pairs the line of names with the line of values below it.
func tcpExt(r io.Reader) (map[string]string, error) {
	var names []string
	for lines := bufio.NewScanner(r); lines.Scan(); {
		fields := strings.Fields(lines.Text())
		switch {
		case len(fields) == 0 || fields[0] != "TcpExt:":
		case names == nil:
			names = fields
		case len(names) != len(fields):
			return nil, fmt.Errorf("%d names and %d values", len(names)-1, len(fields)-1)
		default:
			return paired(names, fields), nil
		}
	}
	return nil, fmt.Errorf("no TcpExt counters")
}

func paired(names, values []string) map[string]string {
	pairs := map[string]string{}
	for i, name := range names {
		pairs[name] = values[i]
	}
	return pairs
}
