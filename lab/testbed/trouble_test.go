package testbed

import (
	"net"
	"testing"
	"time"
)

// TestTrouble: the changes of a link and of a container that experiments make really happen,
// and the node behind them answers again.
func TestTrouble(t *testing.T) {
	bed := up(t, Config{Servers: 2})
	n := bed.Servers[0]
	reaches := func(when string) {
		t.Helper()
		deadline := time.Now().Add(5 * time.Second)
		for {
			l, err := n.Listen("tcp", net.JoinHostPort(n.Addr.String(), "9"))
			if err != nil {
				t.Fatal(err)
			}
			conn, err := bed.Client.DialContext(t.Context(), "tcp", l.Addr().String())
			l.Close()
			if err == nil {
				conn.Close()
				return
			}
			if time.Now().After(deadline) {
				t.Fatalf("%s: %v", when, err)
			}
		}
	}
	own, gateway := net.HardwareAddr{2, 0, 0, 0, 7, 1}, net.HardwareAddr{2, 0, 0, 0, 7, 2}
	if err := n.SetMAC(own); err != nil {
		t.Fatal(err)
	}
	if mac, err := n.MAC(); err != nil || mac.String() != own.String() {
		t.Errorf("its MAC is %s, %v", mac, err)
	}
	reaches("after another MAC")
	if err := n.SetGatewayMAC(gateway); err != nil {
		t.Fatal(err)
	}
	reaches("after another MAC of the gateway")
	if err := n.BurstRoutes(400); err != nil {
		t.Error(err)
	}
}
