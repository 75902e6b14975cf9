package lab

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"proffer/e2e/kit"
)

// TestEdgeDemo: curl, iperf3 and questions go both ways by NAT and firewall; the object that --json prints
// has them, with both cores; the pictures are there; nothing stays.
func TestEdgeDemo(t *testing.T) {
	d := newDemo(t)
	d.Args = append(d.Args[:1:1], "demo", "edge", "--for", "5s", "--out", d.out, "--json")
	d.begin(t)
	if code := d.finish(t); code != 0 {
		t.Fatalf("exit %d:\n%s", code, d.stderr.String())
	}
	d.wantNone(t)
	type count struct{ Asked, Answered int }
	var r struct {
		Balancer string
		Cores    []struct {
			Node                        string
			Predicted, Measured, Weight float64
			Flows, Packets              int
		}
		Curl   count
		Inward count `json:"curl_inward"`
		DNS    count
		Bound  int `json:"nat_bound"`
		Denied int `json:"firewall_denied"`
	}
	if err := json.Unmarshal(d.stdout.Bytes(), &r); err != nil {
		t.Fatalf("%v: %s", err, d.stdout.String())
	}
	if r.Balancer != "model" || len(r.Cores) != 2 || r.Denied == 0 || r.Bound <= r.Curl.Answered { // questions outward are bound, too
		t.Errorf("%s", d.stdout.String())
	}
	for _, c := range r.Cores {
		if c.Flows == 0 || c.Packets < c.Flows || c.Measured <= 0 || c.Predicted <= 0 {
			t.Errorf("core %+v", c)
		}
		// A demo has the same packets for both, but for a tick at its ends; and the world's packets that a node drops.
		if off := math.Abs(c.Predicted/c.Measured - 1); off > 0.15 {
			t.Errorf("%s: a load of %.4f was predicted, and %.4f measured", c.Node, c.Predicted, c.Measured)
		}
	}
	for name, c := range map[string]count{"curl": r.Curl, "curl_inward": r.Inward, "dns": r.DNS} {
		if c.Answered == 0 {
			t.Errorf("%s: %+v", name, c)
		}
	}
	svg, err := os.ReadFile(filepath.Join(d.out, "edge.svg"))
	if err != nil {
		t.Fatal(err)
	}
	if elements, texts, err := readXML(svg); err != nil || elements["path"] < 6 || !strings.Contains(texts, "weight of n1") {
		t.Errorf("edge.svg has %v: %v", elements, err)
	}
	for _, name := range []string{"edge.png", "edge.csv"} {
		if _, err := os.Stat(filepath.Join(d.out, name)); err != nil {
			t.Error(err)
		}
	}
}

// TestEdgeDemoInterrupted: Ctrl-C amid the traffic leaves nothing, iperf3 included, and claims nothing.
func TestEdgeDemoInterrupted(t *testing.T) {
	d := newDemo(t)
	d.Args = append(d.Args[:1:1], "demo", "edge", "--for", "50s", "--out", d.out)
	d.begin(t)
	var client string
	kit.Eventually(t, "iperf3 sends", func() bool {
		client = iperfOf(t, d.Process.Pid)
		return client != ""
	})
	d.interrupt(t, unix.SIGINT)
	if text, err := os.ReadFile(client); err == nil && strings.Contains(string(text), "iperf3") {
		t.Errorf("%s is still there: %s", client, text)
	}
}

// iperfOf is the path of the command line of iperf3's client in a demo's namespaces, or none.
func iperfOf(t *testing.T, pid int) string {
	t.Helper()
	spaces, err := filepath.Glob(fmt.Sprintf("/run/netns/proffer-%d.*-client", pid))
	if err != nil {
		t.Fatal(err)
	}
	lines, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range lines {
		if text, err := os.ReadFile(line); err != nil || !strings.HasPrefix(string(text), "iperf3\x00--client") {
			continue
		}
		own, err := os.Stat(filepath.Join(filepath.Dir(line), "ns/net"))
		for _, space := range spaces {
			if at, failed := os.Stat(space); err == nil && failed == nil && os.SameFile(own, at) {
				return line
			}
		}
	}
	return ""
}
