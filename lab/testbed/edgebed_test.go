package testbed

import (
	"bytes"
	"net"
	"net/netip"
	"testing"
	"time"
)

// TestEdgeBed: the client and the world reach each other by the LB's kernel while it has no programs, and
// each node reaches both; the world takes no packet to the sink; nothing stays after Close.
func TestEdgeBed(t *testing.T) {
	bed, err := EdgeUp(t.Context(), 2)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := bed.Close(); err != nil {
			t.Error(err)
		}
		wantNothingLeft(t)
	}()
	connect(t, bed.Client, bed.World, EdgeWorld)
	for _, addr := range EdgeClient {
		connect(t, bed.World, bed.Client, addr)
	}
	for i, n := range bed.Nodes {
		connect(t, bed.LB, n, EdgeNodeAddr(i))
		connect(t, n, bed.LB, EdgeLBAddr(i))
		connect(t, n, bed.World, EdgeWorld)
		connect(t, n, bed.Client, EdgeClient[1])
	}
	err = bed.Client.Do(func() error {
		conn, err := net.DialUDP("udp4", nil, net.UDPAddrFromAddrPort(netip.AddrPortFrom(EdgeSink.Addr().Next(), 9)))
		if err != nil {
			return err
		}
		defer conn.Close()
		if _, err := conn.Write([]byte("gone")); err != nil {
			return err
		}
		conn.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
		if n, err := conn.Read(make([]byte, 9)); err == nil || !err.(net.Error).Timeout() {
			t.Errorf("the sink answers %d bytes, %v", n, err)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	p, err := bed.World.Start(t.Context(), "echo", "hello")
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Wait(); err != nil || !bytes.Contains([]byte(p.Log()), []byte("hello")) {
		t.Errorf("%v: %s", err, p.Log())
	}
}

func TestEdgeBedRefuses(t *testing.T) {
	for _, nodes := range []int{0, MaxEdgeNodes + 1} {
		if _, err := EdgeUp(t.Context(), nodes); err == nil {
			t.Errorf("a bed with %d nodes is built", nodes)
		}
	}
}
