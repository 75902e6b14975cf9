package farm

import (
	"io"
	"net/netip"
	"os"
	"testing"
	"time"

	"proffer/e2e/kit"
	"proffer/lab/testbed"
)

// TestReusedPorts: a client with a few ports has all of its connections there again and again, at every
// server. Once one drains and the client was silent for a second, it gets none of them.
func TestReusedPorts(t *testing.T) {
	const connections = 100
	for _, mode := range []string{"single", "learned"} {
		t.Run(mode, func(t *testing.T) {
			bed := kit.Up(t, testbed.Config{Servers: 4})
			farm := kit.Start(t, bed, kit.Settings(t, mode))
			for _, n := range bed.Servers {
				kit.Agentless(t, bed, farm.Daemon(n).Stop, n, testbed.DT6)
				kit.Workshop(t, bed, n, 0)
			}
			if err := bed.Client.Do(func() error {
				return os.WriteFile("/proc/sys/net/ipv4/ip_local_port_range", []byte("41000 41099"), 0)
			}); err != nil {
				t.Fatal(err)
			}
			spread := func() map[string]int {
				t.Helper()
				at := map[string]int{}
				for range connections {
					conn, err := bed.Client.DialContext(t.Context(), "tcp", netip.AddrPortFrom(bed.VIP, testbed.Port).String())
					if err != nil {
						t.Fatal(err)
					}
					name, err := kit.AskLine(conn, "work")
					io.Copy(io.Discard, conn) // the server closes first, so that the port is free again at once
					conn.Close()
					if err != nil {
						t.Fatal(err)
					}
					at[name]++
				}
				return at
			}
			kit.Eventually(t, "all servers get connections", func() bool { return len(spread()) == len(bed.Servers) })
			change(t, farm, poolChange{drain: true, add: true}.pool(bed))
			time.Sleep(1500 * time.Millisecond)
			drains := bed.Servers[0].Name
			if at := spread(); at[drains] != 0 {
				t.Errorf("%s drains, and connections went to %v", drains, at)
			}
		})
	}
}
