package edge

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"

	"proffer/api"
	"proffer/e2e/kit"
	"proffer/lab/testbed"
)

// takeover is an edge with an LB and two nodes whose daemons pin their programs.
type takeover struct {
	*kit.EdgeBed
	whole   *testing.T
	dir     string
	pins    string
	program string // that daemons run
	daemons map[*testbed.Node]*exec.Cmd
}

func newTakeover(t *testing.T) *takeover {
	t.Helper()
	b := &takeover{EdgeBed: kit.NewSpaces(t), whole: t, dir: t.TempDir(), program: kit.Proffer, daemons: map[*testbed.Node]*exec.Cmd{}}
	b.pins = fmt.Sprintf("/sys/fs/bpf/proffer-takeover-%d", os.Getpid())
	for i, n := range b.Nodes {
		kit.Must(t, os.WriteFile(b.file(n), []byte(kit.NodeFile(b.dir, i)+b.pin(n)), 0o600))
		b.run(t, n)
	}
	kit.Must(t, os.WriteFile(b.file(b.Balancer), []byte(kit.EdgeFile(b.dir, 1, 1)+b.pin(b.Balancer)), 0o600))
	b.run(t, b.Balancer)
	return b
}

func (b *takeover) all() []*testbed.Node { return append([]*testbed.Node{b.Balancer}, b.Nodes...) }

func (b *takeover) role(n *testbed.Node) string {
	if n == b.Balancer {
		return "edge"
	}
	return "nf"
}

func (b *takeover) name(n *testbed.Node) string {
	if n == b.Balancer {
		return "edge"
	}
	return fmt.Sprintf("n%d", slices.Index(b.Nodes, n))
}

func (b *takeover) file(n *testbed.Node) string   { return filepath.Join(b.dir, b.name(n)+".yaml") }
func (b *takeover) socket(n *testbed.Node) string { return filepath.Join(b.dir, b.name(n)+".sock") }
func (b *takeover) pin(n *testbed.Node) string {
	return fmt.Sprintf("pin: %s/%s\n", b.pins, b.name(n))
}

// run starts a daemon in its network namespace alone, as `ip netns exec` hides the BPF file system, and returns when
// it reaches its far ends.
func (b *takeover) run(t *testing.T, n *testbed.Node) {
	t.Helper()
	log, err := os.OpenFile(b.file(n)+".log", os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	kit.Must(t, err)
	cmd := exec.Command("nsenter", "--net=/run/netns/"+n.Namespace, b.program, b.role(n), "--config", b.file(n))
	cmd.Stderr = log
	kit.Must(t, testbed.StartChild(cmd, unix.SIGKILL))
	b.daemons[n] = cmd
	b.whole.Cleanup(func() {
		if cmd.ProcessState == nil {
			cmd.Process.Kill()
			cmd.Wait()
		}
		if text, err := os.ReadFile(log.Name()); err == nil && b.whole.Failed() {
			b.whole.Logf("%s:\n%s", b.name(n), text)
		}
		os.RemoveAll(filepath.Join(b.pins, b.name(n)))
		os.Remove(b.pins)
	})
	kit.Eventually(t, b.name(n)+" reaches its far ends", func() bool {
		s, err := api.Ask(context.Background(), b.socket(n))
		return err == nil && s.PID == cmd.Process.Pid && len(s.NoNextHop) == 0
	})
}

// end ends daemons by a signal.
func (b *takeover) end(t *testing.T, by unix.Signal, of ...*testbed.Node) {
	t.Helper()
	for _, n := range of {
		kit.Must(t, b.daemons[n].Process.Signal(by))
		b.daemons[n].Wait()
	}
}

// begin opens as many flows of each protocol behind NAT, each with a first answer.
func (b *takeover) begin(t *testing.T, each int) (all []*spoken) {
	t.Helper()
	from := edgeClient[kit.EdgeNAT].AsSlice()
	kit.Must(t, b.Client.Do(func() error {
		for i := range 2 * each {
			s := &spoken{tcp: i%2 == 0}
			local, network := net.Addr(&net.TCPAddr{IP: from}), "tcp4"
			if !s.tcp {
				local, network = &net.UDPAddr{IP: from}, "udp4"
			}
			dialer := net.Dialer{LocalAddr: local, Timeout: kit.Patience}
			conn, err := dialer.Dial(network, netip.AddrPortFrom(edgeWorld, 7).String())
			if err != nil {
				return err
			}
			b.whole.Cleanup(func() { conn.Close() })
			s.conn = conn
			if err := s.talk(); err != nil {
				return err
			}
			all = append(all, s)
		}
		return nil
	}))
	return all
}

// TestEdgeTakeover: 200 live flows of TCP and UDP behind NAT and a firewall go on, by the same public port, while and
// after daemons of the LB and of its nodes are killed, ended, upgraded and reloaded, one kind and all at once. New
// flows begin while no daemon runs. No node is asked for a flow, and none is without its binding. `proffer detach`
// then takes all away.
func TestEdgeTakeover(t *testing.T) {
	b := newTakeover(t)
	answering(t, b.World)
	flows := b.begin(t, 100)
	talk := func(when string) {
		t.Helper()
		if broken, why := talkAll(flows); broken > 0 {
			t.Errorf("%s: %d of %d flows are broken: %v", when, broken, len(flows), why)
		}
	}
	var over atomic.Bool
	steady := flows[:40] // they talk all the time
	flows = flows[40:]
	ended := make(chan error, 1)
	go func() {
		for !over.Load() {
			if broken, why := talkAll(steady); broken > 0 {
				ended <- fmt.Errorf("%d of %d flows that talk all the time: %w", broken, len(steady), why)
				return
			}
		}
		ended <- nil
	}()
	for name, of := range map[string][]*testbed.Node{"the LB": {b.Balancer}, "the nodes": b.Nodes, "all": b.all()} {
		for _, by := range []unix.Signal{unix.SIGKILL, unix.SIGTERM} {
			b.end(t, by, of...)
			talk(name + " ended")
			flows = append(flows, b.begin(t, 2)...)
			for _, n := range of {
				b.run(t, n)
				if s := edgeStatus(t, b.socket(n)); !s.Adopted || s.XDP != "native" {
					t.Errorf("%s after %v: adopted %v, XDP %s", b.name(n), by, s.Adopted, s.XDP)
				}
			}
			talk(name + " began again")
		}
	}
	upgraded := filepath.Join(b.dir, "proffer-next")
	kit.Sh(t, "cp", kit.Proffer, upgraded)
	b.program = upgraded
	for _, n := range b.all() {
		b.end(t, unix.SIGTERM, n)
		b.run(t, n)
	}
	talk("after an upgrade")
	for i, n := range b.Nodes { // another chain, and another LB beside
		text := strings.ReplaceAll(kit.NodeFile(b.dir, i), "{function: cost, time: 2us}", "{function: cost, time: 3us}")
		kit.Must(t, os.WriteFile(b.file(n), []byte(text+b.pin(n)), 0o600))
		kit.Must(t, b.daemons[n].Process.Signal(unix.SIGHUP))
		kit.Eventually(t, b.name(n)+" has read its file again", func() bool { return edgeStatus(t, b.socket(n)).Reloads == 1 })
	}
	talk("after a reload of the nodes")
	over.Store(true)
	if err := <-ended; err != nil {
		t.Error(err)
	}
	steady = append(steady, flows...)
	for _, n := range b.all() {
		s := edgeStatus(t, b.socket(n))
		if s.Flows < 200 {
			t.Errorf("%s has %d flows", b.name(n), s.Flows)
		}
		for _, counter := range []string{"recover", "recovered", "unowned", "flow_moved", "unbound", "drop_nat_unknown", "drop_firewall_state", "drop_unknown_flow"} {
			if v := s.Counters[counter]; v > 0 {
				t.Errorf("%s: %s is %d", b.name(n), counter, v)
			}
		}
	}
	b.end(t, unix.SIGTERM, b.all()...)
	for _, n := range b.all() {
		kit.Sh(t, "nsenter", "--net=/run/netns/"+n.Namespace, kit.Proffer, "detach")
		if links := kit.Inside(t, n, "ip", "-o", "link"); strings.Contains(links, "xdp") {
			t.Errorf("programs stay at\n%s", links)
		}
	}
	if left, err := os.ReadDir(b.pins); err == nil && len(left) > 0 {
		t.Errorf("pins stay: %v", left)
	}
}
