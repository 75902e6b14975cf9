package experiment

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"proffer/testbed"
)

// tcpSegments is how many TCP segments a node's kernel has got since it exists:
// InSegs of /proc/net/snmp (RFC 4022), of both families.
func tcpSegments(n *testbed.Node) (segments uint64, err error) {
	var text []byte
	err = n.Do(func() (err error) {
		text, err = os.ReadFile("/proc/thread-self/net/snmp")
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("read TCP's counters of %s: %w", n.Name, err)
	}
	segments, err = inSegs(string(text))
	if err != nil {
		return 0, fmt.Errorf("read TCP's counters of %s: %w", n.Name, err)
	}
	return segments, nil
}

// inSegs finds the value below the name in the two lines of Tcp.
func inSegs(text string) (uint64, error) {
	var names []string
	for line := range strings.Lines(text) {
		fields := strings.Fields(line)
		switch {
		case len(fields) == 0 || fields[0] != "Tcp:":
		case names == nil:
			names = fields
		default:
			for i, name := range names {
				if name == "InSegs" && i < len(fields) {
					return strconv.ParseUint(fields[i], 10, 64)
				}
			}
		}
	}
	return 0, errors.New("there is no Tcp InSegs")
}
