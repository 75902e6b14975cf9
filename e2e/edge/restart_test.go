package edge

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"proffer/e2e/kit"
	"proffer/lab/testbed"
)

// TestEdgeRestart: with the rules that the LB's advice names, nothing passes the functions by while no
// edge LB runs, and connections behind NAT outlive an end and a kill of the daemon: segments in between
// are lost and come again.
func TestEdgeRestart(t *testing.T) {
	b := kit.NewSpaces(t)
	dir := t.TempDir()
	asked := edgeEchoes(t, b.World)
	const connections, chunks, every = 8, 120, 50 * time.Millisecond
	listener, err := b.World.Listen("tcp", netip.AddrPortFrom(edgeWorld, 80).String())
	kit.Must(t, err)
	begun := make(chan netip.AddrPort, connections)
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		begun <- netip.MustParseAddrPort(r.RemoteAddr)
		n, _ := io.Copy(io.Discard, r.Body)
		fmt.Fprint(w, n)
	})}
	go server.Serve(listener)
	t.Cleanup(func() { server.Close() })
	for i, n := range b.Nodes {
		at := filepath.Join(dir, n.Name+".yaml")
		kit.Must(t, os.WriteFile(at, []byte(kit.NodeFile(dir, i)), 0o600))
		runEdge(t, n, "nf", at, filepath.Join(dir, n.Name+".sock"))
	}
	socket, file := filepath.Join(dir, "edge.sock"), filepath.Join(dir, "edge.yaml")
	kit.Must(t, os.WriteFile(file, []byte(kit.EdgeFile(dir, 1, 1)), 0o600))
	lb := runEdge(t, b.Balancer, "edge", file, socket)
	bypassed := func() []string {
		return slices.DeleteFunc(edgeStatus(t, socket).Advice, func(a string) bool { return !strings.Contains(a, "pass the network functions by") })
	}
	advice := bypassed()
	if text := kit.Sh(t, kit.Proffer, "status", "--control", socket); len(advice) != 5 || !strings.Contains(text, "advice: "+advice[0]) {
		t.Errorf("advice %q; status prints\n%s", advice, text)
	}
	for _, a := range advice {
		_, command, _ := strings.Cut(a, "`")
		kit.Inside(t, b.Balancer, strings.Fields(strings.TrimSuffix(command, "`"))...)
	}
	if advice := bypassed(); len(advice) > 0 {
		t.Errorf("advice %q after that", advice)
	}
	var curls sync.WaitGroup
	for range connections {
		curls.Go(func() {
			curl := exec.Command("ip", "netns", "exec", b.Client.Namespace, "curl", "-sS", "--max-time", "60", "--interface", edgeClient[kit.EdgeNAT].String(),
				"-T", "-", "http://"+edgeWorld.String()+"/")
			body, writer := io.Pipe()
			curl.Stdin = body
			go func() {
				for range chunks {
					io.WriteString(writer, strings.Repeat("x", 100))
					time.Sleep(every)
				}
				writer.Close()
			}()
			if out, err := curl.CombinedOutput(); err != nil || string(out) != "12000" {
				t.Errorf("curl: %v: %s", err, out)
			}
			body.Close()
		})
	}
	for range connections {
		if from := <-begun; from.Addr().Unmap() != kit.EdgePublic {
			t.Errorf("the world sees %v", from)
		}
	}
	for _, end := range []unix.Signal{unix.SIGTERM, unix.SIGKILL} {
		kit.Must(t, lb.Process.Signal(end))
		lb.Wait()
		passBy(t, b.Client)
		time.Sleep(10 * every)
		lb = runEdge(t, b.Balancer, "edge", file, socket)
		time.Sleep(20 * every)
	}
	curls.Wait()
	if len(asked) > 0 {
		t.Errorf("%v asked the world while no edge LB ran", <-asked)
	}
}

// passBy sends a datagram to the world while no edge LB runs.
func passBy(t *testing.T, client *testbed.Node) {
	t.Helper()
	kit.Must(t, client.Do(func() error {
		from := net.UDPAddrFromAddrPort(netip.AddrPortFrom(edgeClient[kit.EdgeNAT], 0))
		conn, err := net.DialUDP("udp4", from, net.UDPAddrFromAddrPort(netip.AddrPortFrom(edgeWorld, 7)))
		if err != nil {
			return err
		}
		defer conn.Close()
		_, err = io.WriteString(conn, "past the functions")
		return err
	}))
}
