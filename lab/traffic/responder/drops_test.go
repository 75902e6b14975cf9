package responder

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestReadDrops(t *testing.T) {
	for _, c := range []struct {
		name, text string
		want       Drops
		err        string
	}{
		{"as the kernel has it",
			"TcpExt: SyncookiesSent ListenOverflows ListenDrops TCPSynRetrans\nTcpExt: 9 3 4 5\nIpExt: ListenDrops\nIpExt: 8\n",
			Drops{ListenDrops: 4, ListenOverflows: 3, SYNRetransmits: 5}, ""},
		{"nothing", "", Drops{}, "no TcpExt counters"},
		{"no values", "TcpExt: ListenDrops\n", Drops{}, "no TcpExt counters"},
		{"a counter less", "TcpExt: ListenOverflows ListenDrops\nTcpExt: 1 2\n", Drops{}, "TCPSynRetrans"},
		{"a value less", "TcpExt: ListenOverflows ListenDrops\nTcpExt: 1\n", Drops{}, "2 names and 1 values"},
		{"no number", "TcpExt: ListenOverflows ListenDrops TCPSynRetrans\nTcpExt: 1 x 2\n", Drops{}, "ListenDrops"},
	} {
		path := filepath.Join(t.TempDir(), "netstat")
		if err := os.WriteFile(path, []byte(c.text), 0o600); err != nil {
			t.Fatal(err)
		}
		got, err := ReadDrops(path)
		if c.err != "" {
			if err == nil || !strings.Contains(err.Error(), c.err) {
				t.Errorf("%s: got error %v, want one with %q", c.name, err, c.err)
			}
			continue
		}
		if err != nil || got != c.want {
			t.Errorf("%s: got %+v, %v, want %+v", c.name, got, err, c.want)
		}
	}
}
