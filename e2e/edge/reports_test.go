package edge

import (
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"proffer/api"
	"proffer/e2e/kit"
)

// TestEdgeReports: nodes measure the costs of their chains, and report them and the run time of each
// core's programs to the LB; a stated cost wins. Under `balancer: monitor` the core that works gets
// fewer of the new flows. The loads of a node that ended are not known any more, its costs stay.
func TestEdgeReports(t *testing.T) {
	b := kit.NewSpaces(t)
	dir := t.TempDir()
	socket, file := filepath.Join(dir, "edge.sock"), filepath.Join(dir, "edge.yaml")
	const each = 400 * time.Microsecond
	var nodes []func()
	for i, n := range b.Nodes {
		at := filepath.Join(dir, n.Name+".yaml")
		text := strings.ReplaceAll(kit.NodeFile(dir, i), "time: 2us", "time: "+each.String())
		kit.Must(t, os.WriteFile(at, []byte(text), 0o600))
		cmd := runEdge(t, n, "nf", at, filepath.Join(dir, n.Name+".sock"))
		nodes = append(nodes, func() {
			kit.Must(t, cmd.Process.Signal(unix.SIGTERM))
			kit.Must(t, cmd.Wait())
		})
	}
	kit.Must(t, os.WriteFile(file, []byte("balancer: monitor\n"+kit.EdgeFile(dir, 1, 1)), 0o600))
	runEdge(t, b.Balancer, "edge", file, socket)
	kit.Eventually(t, "the costs of both nodes are known, and the loads of all cores", func() bool {
		s, from := edgeStatus(t, socket).Edge, map[string]bool{}
		for _, c := range s.Costs {
			from[fmt.Sprint(c.Node, " ", c.Service, " ", c.From)] = true
			if c.From == "measured" && c.Nanoseconds < float64(each) {
				t.Fatalf("%+v of a chain with a function of %v", c, each)
			}
		}
		return from["n0 1 stated"] && from["n1 1 stated"] && from["n0 2 measured"] && from["n1 2 measured"] && measuredCores(s, "n0")+measuredCores(s, "n1") == 4
	})
	if s := edgeStatus(t, filepath.Join(dir, "n1.sock")); s.Reports == nil || s.Reports.Answered == 0 || s.Reports.Refused+s.Reports.Limited > 0 || len(s.Edge.Costs) != 2 {
		t.Errorf("n1 has the status %+v, %+v", s.Reports, s.Edge)
	}
	stop := make(chan bool)
	defer close(stop)
	var conn net.Conn
	kit.Must(t, b.Client.Do(func() (err error) {
		from := net.UDPAddrFromAddrPort(netip.AddrPortFrom(edgeClient[kit.EdgeCost], 0))
		conn, err = net.DialUDP("udp4", from, net.UDPAddrFromAddrPort(netip.AddrPortFrom(edgeWorld, 9)))
		return err
	}))
	defer conn.Close()
	go func() { // a tenth of a core, or more
		for {
			select {
			case <-stop:
				return
			case <-time.After(time.Millisecond):
				io.WriteString(conn, "an elephant's datagram")
			}
		}
	}()
	var busy api.CoreStatus
	kit.Eventually(t, "the core of the flow works, and weighs less than the others", func() bool {
		most, others := api.CoreStatus{}, 0.0
		for _, c := range edgeStatus(t, socket).Edge.Cores {
			if c.Measured == nil {
				return false
			}
			if most.Measured == nil || *c.Measured > *most.Measured {
				most = c
			}
			others += *c.Weight / 3
		}
		busy, others = most, others-*most.Weight/3
		return *most.Measured > 0.05 && *most.Weight < 0.9*others && most.Packets > 0
	})
	if *busy.Measured > 1.5 {
		t.Errorf("core %+v has a load of %v", busy, *busy.Measured)
	}
	nodes[1]()
	kit.Eventually(t, "the loads of the node that ended are unknown", func() bool {
		s := edgeStatus(t, socket).Edge
		return measuredCores(s, "n0") == 2 && measuredCores(s, "n1") == 0 && len(s.Costs) == 4 && s.Costs[3].From == "measured"
	})
}

// measuredCores counts the cores of a node with a measured load.
func measuredCores(s *api.EdgeStatus, node string) (n int) {
	for _, c := range s.Cores {
		if c.Node == node && c.Measured != nil {
			n++
		}
	}
	return n
}
