package agent_test

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/cilium/ebpf"

	"proffer/dataplane/internal/plane"
	"proffer/dataplane/objects"
	"proffer/proof/rig"
	"proffer/topo"
	"proffer/wire"
)

// byTable are services of both protocols and families whose flows only the table shows.
func byTable() []topo.Offering {
	over4 := func(o *topo.Offering) { o.VIP.Addr = rig.Vip4 }
	return []topo.Offering{
		rig.Offering(rig.HuntPort, rig.ByTable), udpOffering(rig.ByTable),
		rig.Offering(rig.HuntPort, rig.ByTable, over4), udpOffering(rig.ByTable, over4),
	}
}

// tableFlow is a client's packet of flow i of byTable.
func tableFlow(i int) rig.Packet {
	p := rig.Inward([]uint16{rig.HuntPort, udpPort}[i%2], wire.ACK)
	if i%2 == 1 {
		p.Protocol = topo.UDP
	}
	p.Src = netip.AddrPortFrom(rig.ClientAddr, uint16(20000+i))
	if i/2%2 == 1 {
		p.Src, p.Dst = netip.AddrPortFrom(rig.Client4, p.Src.Port()), netip.AddrPortFrom(rig.Vip4, p.Dst.Port())
	}
	p.Seq++
	return p
}

func insideOf(p rig.Packet) rig.Inner {
	if p.Protocol == topo.UDP {
		return rig.InnerUDP(p)
	}
	return rig.InnerTCP(p)
}

// beginFlow offers a flow and, of half of the flows, steers another packet. The rest stays embryonic.
func beginFlow(t *testing.T, r *rig.Agent, i int) {
	t.Helper()
	p := tableFlow(i)
	first := p
	first.Seq, first.Flags = p.Seq-1, wire.SYN
	outcome(t, r, rig.ToWith(insideOf(first), wire.Generation(first.Seq), wire.ConnectForce), fmt.Sprintf("offer of flow %d", i), rig.XDPPass, "accept_force")
	if i%8 < 4 {
		wantHere(t, r, i, "first packet")
	}
}

// outcome sends a frame, for which an action and a reason are wanted. The kernel may send packets of its own
// past an attached program meanwhile.
func outcome(t *testing.T, r *rig.Agent, frame rig.SR, label string, action uint32, reason string) {
	t.Helper()
	if out := r.Send(t, frame.Frame()); out.Action != action || !slices.Contains(out.Reasons, reason) {
		t.Errorf("%s: action %d for %v, want %d for %s", label, out.Action, out.Reasons, action, reason)
	}
}

// wantHere steers a packet of a flow, which must be this server's.
func wantHere(t *testing.T, r *rig.Agent, i int, label string) {
	t.Helper()
	p := tableFlow(i)
	c, known := r.Conn(t, insideOf(p).Flow)
	if !known {
		t.Errorf("%s: flow %d has no entry", label, i)
		return
	}
	out := r.Send(t, rig.ToWith(insideOf(p), c.Generation, wire.AckStickiness).Frame())
	if out.Action != rig.XDPPass {
		t.Errorf("%s of flow %d: action %d, %v", label, i, out.Action, out.Reasons)
	}
}

// resized is a running agent with flows, and the next one with a table for so many.
func resized(t *testing.T, seen rig.Hits, from, to, flows int) (first *rig.Agent, next func() *rig.Agent) {
	t.Helper()
	rig.NewAgent(t, rig.Hits{}, rig.Offering(rig.HuntPort)) // for its namespace
	cfg := rig.AgentConfig(from, byTable()...)
	cfg.Flows.Embryonic, cfg.Pin = from, rig.BPFFS(t)+"/s1"
	first = rig.LoadAgent(t, rig.Hits{}, cfg, rig.InVirtualTime)
	if err := first.Attach(); err != nil {
		t.Fatal(err)
	}
	for i := range flows {
		beginFlow(t, first, i)
	}
	first.Die()
	return first, func() *rig.Agent {
		cfg.Flows.Entries, cfg.Flows.Embryonic = to, to
		return rig.LoadAgent(t, seen, cfg, rig.InVirtualTime)
	}
}

// TestAnotherSize: flows that only the agent's table shows stay at their server over a restart with a larger
// or a smaller table, with their requests in progress; and once more.
func TestAnotherSize(t *testing.T) {
	const flows = 160
	for _, size := range [][2]int{{200, 1500}, {1500, 200}, {200, 201}} {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			first, next := resized(t, rig.Hits{}, size[0], size[1], flows)
			asking := first.Asking(t)
			request := tableFlow(0)
			request.Payload = []byte("GET")
			if first.Send(t, rig.ToWith(insideOf(request), wire.Generation(rig.ClientISN), wire.AckStickiness).Frame()); first.Asking(t) != asking+1 {
				t.Fatal("no request is in progress")
			}
			for range 2 {
				r := next()
				if err := r.Attach(); err != nil || r.Forgotten() != "" || !r.Adopted() {
					t.Fatalf("%v, forgotten %q", err, r.Forgotten())
				}
				rig.ConnsOf(t, r.Agent).Hinted(t)
				if is := r.Asking(t); is != asking+1 {
					t.Errorf("%d requests in progress, want %d", is, asking+1)
				}
				for i := range flows {
					wantHere(t, r, i, "after the restart")
				}
				stranger := insideOf(tableFlow(flows))
				outcome(t, r, rig.ToWith(stranger, 1, wire.AckStickiness), "a flow that never was here", rig.XDPTX, "give_back_not_mine")
				r.Die()
			}
		})
	}
}

// TestTooSmall: of a table without room for all, those that find room stay, established flows first, and the
// others are counted.
func TestTooSmall(t *testing.T) {
	const flows = 160
	_, next := resized(t, rig.Hits{}, 400, 5, flows)
	r := next()
	if err := r.Attach(); err != nil {
		t.Fatal(err)
	}
	_, established := rig.ConnsOf(t, r.Agent).Count(t)
	lost := 0
	if _, err := fmt.Sscanf(r.Forgotten(), "%d flows: the table has", &lost); err != nil || established == 0 || lost+established != settledFlows(flows) {
		t.Errorf("%d established flows found room, forgotten: %q; %d there were", established, r.Forgotten(), settledFlows(flows))
	}
}

// settledFlows are those of TCP that got another packet than their SYN.
func settledFlows(flows int) (n int) {
	for i := range flows {
		if i%8 < 4 && i%2 == 0 {
			n++
		}
	}
	return n
}

// testRestoredMeanwhile: a flow that begins, and packets of a flow that come, while the programs of before
// still have the packets are restored, too. Between these programs and the second walk, packets of flows
// without an entry are dropped where only the table shows the owner, and later given back again.
func testRestoredMeanwhile(t *testing.T, seen rig.Hits) {
	first, next := resized(t, seen, 200, 300, 8)
	r := next()
	if err := r.BeginRestore(); err != nil {
		t.Fatal(err)
	}
	r.At(t, rig.Start+rig.ConnUnit)
	first.At(t, rig.Start+rig.ConnUnit)
	beginFlow(t, first, 9)
	request := tableFlow(0)
	request.Payload = []byte("GET")
	first.Send(t, rig.ToWith(insideOf(request), wire.Generation(rig.ClientISN), wire.AckStickiness).Frame())
	wantHere(t, first, 4, "embryonic until now")

	late := rig.ToWith(insideOf(tableFlow(9)), 1, wire.AckStickiness)
	outcome(t, r, late, "before the second walk", rig.XDPDrop, "drop_restoring")
	asked := rig.ToWith(insideOf(tableFlow(9)), 0, wire.RecoverStickiness, wire.RecoverStickiness)
	outcome(t, r, asked, "a question before the second walk", rig.XDPDrop, "drop_restoring")
	wantHere(t, r, 1, "restored by the first walk")
	if err := r.EndRestore(); err != nil {
		t.Fatal(err)
	}
	wantHere(t, r, 9, "after the second walk")
	if _, is := r.Settled(t, insideOf(tableFlow(4)).Flow); !is {
		t.Error("a flow that became established meanwhile is embryonic")
	}
	if c, _ := r.Conn(t, insideOf(tableFlow(0)).Flow); c.NextIn != request.Seq+3 {
		t.Errorf("the request that came meanwhile: next in %d, want %d", c.NextIn, request.Seq+3)
	}
	outcome(t, r, rig.ToWith(insideOf(tableFlow(99)), 1, wire.AckStickiness), "of no flow, afterwards", rig.XDPTX, "give_back_not_mine")
	if err := r.EndRestore(); err != nil {
		t.Errorf("another time: %v", err)
	}
}

// TestAnotherSizeOfSockets: where the kernel owns the flows, nothing is lost either, by their sockets.
func TestAnotherSizeOfSockets(t *testing.T) {
	rig.NewAgent(t, rig.Hits{}, rig.Offering(rig.HuntPort)) // for its namespace
	cfg := rig.AgentConfig(64, rig.Offering(rig.HuntPort))
	cfg.Pin = rig.BPFFS(t) + "/s1"
	first := rig.LoadAgent(t, rig.Hits{}, cfg, rig.InVirtualTime)
	if err := first.Attach(); err != nil {
		t.Fatal(err)
	}
	p := rig.Inward(rig.HuntPort, wire.SYN)
	first.Begin(t, p)
	first.Acknowledge(t, p)
	first.Die()
	cfg.Flows.Entries = 500
	r := rig.LoadAgent(t, rig.Hits{}, cfg, rig.InVirtualTime)
	if err := r.Attach(); err != nil || strings.Contains(r.Forgotten(), "flows") {
		t.Fatalf("%v, forgotten %q", err, r.Forgotten())
	}
	later := p
	later.Flags, later.Seq = wire.ACK, p.Seq+1
	outcome(t, r, rig.To(later, wire.Generation(p.Seq), wire.AckStickiness), "its next packet", rig.XDPPass, "steered")
}

// pinStored puts the table that the programs of an earlier layout left (testdata/layout-N.json: flows 0 to 31
// of beginFlow) in the place of a dead agent's.
func pinStored(t *testing.T, pins *plane.Pins, layout int) {
	t.Helper()
	var stored struct {
		Lines uint32
		Table []byte // gzip
	}
	text, err := os.ReadFile(fmt.Sprintf("testdata/layout-%d.json", layout))
	if err == nil {
		err = json.Unmarshal(text, &stored)
	}
	if err != nil {
		t.Fatal(err)
	}
	z, err := gzip.NewReader(bytes.NewReader(stored.Table))
	if err != nil {
		t.Fatal(err)
	}
	table, err := io.ReadAll(z)
	if err != nil {
		t.Fatal(err)
	}
	size := len(table) / int(stored.Lines)
	m, err := ebpf.NewMap(&ebpf.MapSpec{Name: "conns", Type: ebpf.Array, KeySize: 4, ValueSize: uint32(size), MaxEntries: stored.Lines, Flags: rig.Mmapable})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	for i := range stored.Lines {
		if err := m.Put(i, table[int(i)*size:][:size]); err != nil {
			t.Fatal(err)
		}
	}
	at := pins.Path(objects.AgentMapConns)
	err = errors.Join(os.Remove(pins.Path(plane.Layout)), os.Mkdir(pins.Path(fmt.Sprint("layout-", layout)), 0o700), os.Remove(at), m.Pin(at))
	if err != nil {
		t.Fatal(err)
	}
}

// TestEarlierAgents: the flows of an agent of any layout since the second one stay at their server. Those of
// an unknown layout are counted, and the log names the loss.
func TestEarlierAgents(t *testing.T) {
	for _, layout := range []int{2, 3, 4, 5, 6, 9} {
		t.Run(fmt.Sprint(layout), func(t *testing.T) {
			rig.NewAgent(t, rig.Hits{}, rig.Offering(rig.HuntPort)) // for its namespace
			cfg := rig.AgentConfig(64, byTable()...)
			cfg.Pin = rig.BPFFS(t) + "/s1"
			first := rig.LoadAgent(t, rig.Hits{}, cfg, rig.InVirtualTime)
			if err := first.Attach(); err != nil {
				t.Fatal(err)
			}
			pins := first.Pins
			first.Die()
			pinStored(t, &pins, min(layout, 6))
			lost := ""
			if layout == 9 {
				lost = "32 flows: the entries are of layout-9, this version reads " + plane.Layout
				if err := os.Rename(pins.Path("layout-6"), pins.Path("layout-9")); err != nil {
					t.Fatal(err)
				}
			}
			r := rig.LoadAgent(t, rig.Hits{}, cfg, rig.InVirtualTime)
			if err := r.Attach(); err != nil || r.Forgotten() != lost {
				t.Fatalf("%v, forgotten %q, want %q", err, r.Forgotten(), lost)
			}
			rig.ConnsOf(t, r.Agent).Hinted(t)
			_, settled := rig.ConnsOf(t, r.Agent).Count(t)
			if want := settledFlows(32); (lost == "") != (settled == want) {
				t.Errorf("%d established flows, want %d", settled, want)
			}
			for i := range 32 {
				if lost == "" {
					wantHere(t, r, i, "its next packet")
				}
			}
			if r.Asking(t) != 0 {
				t.Errorf("%d requests in progress, of a load that is not the earlier agent's", r.Asking(t))
			}
		})
	}
}
