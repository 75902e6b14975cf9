package listeners

import (
	"net"
	"net/netip"
	"testing"
)

// TestDiagnosedListensOnly: the kernel is asked for the sockets that listen alone: a server has many
// more connections.
func TestDiagnosedListensOnly(t *testing.T) {
	for _, address := range []string{"127.0.0.1:0", "[::1]:0"} {
		l, err := net.Listen("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		for range 3 {
			client, err := net.Dial("tcp", l.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			defer client.Close()
			server, err := l.Accept()
			if err != nil {
				t.Fatal(err)
			}
			defer server.Close()
		}
		all, err := diagnosed()
		if err != nil {
			t.Fatal(err)
		}
		n := 0
		for _, s := range all {
			if s.local == netip.MustParseAddrPort(l.Addr().String()) && s.inode != 0 {
				n++
			}
		}
		if n != 1 {
			t.Errorf("%d sockets at %v, want the one that listens", n, l.Addr())
		}
	}
}
