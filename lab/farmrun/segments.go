package farmrun

import (
	"fmt"
	"os"
	"strconv"
	"strings"

	"proffer/lab/testbed"
)

// TCPCounter is a counter of a node's kernel since it exists, by its name among
// those of Tcp in /proc/net/snmp (RFC 4022), of both families: InSegs are the
// segments it got, PassiveOpens the connections that its listeners took.
func TCPCounter(n *testbed.Node, name string) (value uint64, err error) {
	var text []byte
	err = n.Do(func() (err error) {
		text, err = os.ReadFile("/proc/thread-self/net/snmp")
		return err
	})
	if err == nil {
		value, err = tcpValue(string(text), name)
	}
	if err != nil {
		return 0, fmt.Errorf("read TCP's counters of %s: %w", n.Name, err)
	}
	return value, nil
}

// tcpValue finds the value below a name in the two lines of Tcp.
func tcpValue(text, wanted string) (uint64, error) {
	var names []string
	for line := range strings.Lines(text) {
		fields := strings.Fields(line)
		switch {
		case len(fields) == 0 || fields[0] != "Tcp:":
		case names == nil:
			names = fields
		default:
			for i, name := range names {
				if name == wanted && i < len(fields) {
					return strconv.ParseUint(fields[i], 10, 64)
				}
			}
		}
	}
	return 0, fmt.Errorf("there is no Tcp %s", wanted)
}
