package edge

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"proffer/control"
	"proffer/dataplane/edge"
	"proffer/dataplane/nf"
	"proffer/lab/testbed"
	"proffer/topo"
	"proffer/weights"
	"proffer/wire"
)

// predicting is an LB and a node with a chain.
type predicting struct {
	node             *nf.Node
	lb               *edge.LB
	costs            map[int]weights.Curve
	learned, started *control.Levels
	busyAt, busy     time.Duration // at the last tick
	packets, seen    uint64        // by the LB, and by the core
}

// newPredicting loads and attaches both planes, and measures the chain before.
func newPredicting(bed *testbed.EdgeBed, c PredictedChain) (_ *predicting, err error) {
	r := &predicting{}
	defer func() {
		if err != nil {
			err = errors.Join(err, r.close())
		}
	}()
	node := &topo.Datapath{
		Server: predictedNode, Link: "lb", LBs: []netip.Addr{testbed.EdgeLBAddr(0)}, Cores: 1, Spread: true,
		Clients: []netip.Prefix{testbed.EdgeClients}, Idle: time.Minute, Linger: time.Second,
		Chains: []topo.Chain{{Service: predictedService, Functions: c.Functions}},
	}
	link := bed.Nodes[0].Name
	toNode, err := macOf(bed.Nodes[0], "lb")
	if err != nil {
		return nil, err
	}
	toLB, err := macOf(bed.LB, link)
	if err != nil {
		return nil, err
	}
	err = bed.Nodes[0].Do(func() (err error) {
		if r.costs, err = nf.Measure(node); err != nil {
			return err
		}
		if r.node, err = nf.New(node); err != nil {
			return err
		}
		return errors.Join(r.node.SetNextHop(0, toLB), r.node.Attach(), r.dedicate())
	})
	if err != nil {
		return nil, err
	}
	lb := &topo.EdgeLB{
		Clients: "clients", World: "world", Public: []netip.Prefix{netip.PrefixFrom(testbed.EdgePublic, 32)},
		Flows: topo.FlowTable{Entries: 4096, Idle: time.Minute},
		Nodes: []topo.EdgeNode{{Name: bed.Nodes[0].Name, Server: predictedNode, Addr: testbed.EdgeNodeAddr(0), Link: link, Cores: 1, Weight: 1}},
		Services: []topo.EdgeService{{Number: predictedService, Prefixes: []netip.Prefix{testbed.EdgeClients},
			Instances: []topo.EdgeInstance{{Server: predictedNode, Weight: 1}}}},
		ReportKey: new(topo.Key),
	}
	err = bed.LB.Do(func() (err error) {
		if r.lb, err = edge.New(lb); err != nil {
			return err
		}
		return errors.Join(r.lb.SetNextHop(predictedNode, toNode), r.lb.Attach())
	})
	if err != nil {
		return nil, err
	}
	if r.learned, err = control.NewLevels(r.lb, lb, nil); err != nil {
		return nil, err
	}
	r.started, err = control.NewLevels(r.lb, lb, nil)
	return r, err
}

// dedicate has the thread of the core's CPU run before all others there, as on a CPU of its own.
func (r *predicting) dedicate() error {
	info, err := r.node.Objects().NodeCpus.Info()
	if err != nil {
		return fmt.Errorf("find the core's thread: %w", err)
	}
	id, _ := info.ID()
	name := fmt.Sprintf("cpumap/0/map:%d", id)
	all, err := filepath.Glob("/proc/[0-9]*/comm")
	if err != nil {
		return fmt.Errorf("find the core's thread: %w", err)
	}
	for _, path := range all {
		comm, err := os.ReadFile(path) // an error is of a thread that ended
		if err != nil || strings.TrimSpace(string(comm)) != name {
			continue
		}
		thread, err := strconv.Atoi(filepath.Base(filepath.Dir(path)))
		if err == nil {
			err = unix.SchedSetAttr(thread, &unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_FIFO, Priority: 1}, 0)
		}
		if err != nil {
			return fmt.Errorf("let %s run before others: %w", name, err)
		}
		return nil
	}
	return fmt.Errorf("there is no thread %s", name)
}

func macOf(n *testbed.Node, link string) (mac topo.MAC, err error) {
	err = n.Do(func() error {
		dev, err := net.InterfaceByName(link)
		if err == nil {
			mac = topo.MAC(dev.HardwareAddr)
		}
		return err
	})
	return mac, err
}

func (r *predicting) close() (err error) {
	if r.lb != nil {
		err = r.lb.Close()
	}
	if r.node != nil {
		err = errors.Join(err, r.node.Close())
	}
	return err
}

// predictionFrames makes datagrams of many flows.
type predictionFrames struct{ to, from topo.MAC }

// predictedFlows is how many there are: all in the caches, as of a busy client network.
const predictedFlows = 64

func newPredictionFrames(bed *testbed.EdgeBed) (f *predictionFrames, err error) {
	f = &predictionFrames{}
	if f.to, err = macOf(bed.LB, "clients"); err != nil {
		return nil, err
	}
	f.from, err = macOf(bed.Client, "lb")
	return f, err
}

func (f *predictionFrames) of(payload int) func(int) []byte {
	var all [][]byte
	for flow := range predictedFlows {
		ip := wire.IP{Source: testbed.EdgeClient[0], Destination: testbed.EdgeSink.Addr().Next(), HopLimit: wire.DefaultHopLimit}
		all = append(all, wire.Frame(f.to, f.from, ip.UDP(uint16(1024+flow), 9, make([]byte, payload))))
	}
	return func(i int) []byte { return all[i%len(all)] }
}
