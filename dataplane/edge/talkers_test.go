package edge_test

import (
	"fmt"
	"math"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"

	"proffer/proof/rig"
	"proffer/topo"
	"proffer/wire"
)

// testTalkers: a flow with half of the packets is named first, with both of its tuples as one, its rate
// and its place; small flows and flows of long ago are not named.
func testTalkers(t *testing.T, seen rig.Hits) {
	b := newBench(t, seen)
	elephant, mouse := from4("udp", 3000), from4("tcp", 3001)
	to := b.tunnelled(t, "elephant", b.fromClient(t, elephant.packet()), elephant.packet(), "flow_begun", "steer")
	changed := natted(elephant, 40000)
	b.fromNode(t, back(to), changed.packet()).Is(t, "change", redirect, nil, "update_learned")
	b.fromClient(t, mouse.packet())
	many := func(program *ebpf.Program, link string, f flow, packets int) {
		t.Helper()
		frame := wire.Frame(b.macs[link], rig.RouterMAC, f.packet())
		for range packets {
			_, err := program.Run(&ebpf.RunOptions{Data: frame, DataOut: make([]byte, len(frame)+256)})
			must(t, err)
		}
	}
	named := func() (all []string) {
		t.Helper()
		talkers, err := b.Talkers(8)
		must(t, err)
		for _, f := range talkers {
			all = append(all, fmt.Sprintf("%d %v %v %v %.0f/s %.0f B/s %.2f", f.Protocol, f.Client, f.World, f.Instance, f.Packets, f.Bytes, f.Share))
		}
		return all
	}
	b.at(t, b.now+20*time.Second)
	if all := named(); len(all) > 0 {
		t.Errorf("without packets: %v", all)
	}
	few := 2 * topo.EdgeSampled
	for range 3 { // the packets come on one CPU or another
		many(b.Objects().EdgeClients, "clients", elephant, 8*few)
		many(b.Objects().EdgeWorld, "world", changed.reversed(), 8*few)
	}
	many(b.Objects().EdgeClients, "clients", mouse, few/4)
	all := named()
	want := fmt.Sprintf("17 %v %v %v", elephant.from, elephant.to, to.Instance)
	if len(all) != 1 || !strings.HasPrefix(all[0], want) {
		t.Fatalf("talkers %q, want one alone, %q", all, want)
	}
	talkers, _ := b.Talkers(8)
	packets, bytes := 6*8*float64(few), float64(len(elephant.packet()))
	if f := talkers[0]; math.Abs(f.Packets-packets/10) > packets/100 || math.Abs(f.Bytes/f.Packets-bytes) > 1 || f.Share < 0.9 {
		t.Errorf("%v: want %.1f packets/s of %.0f bytes", f, packets/10, bytes)
	}
	b.at(t, b.now+20*time.Second)
	if all := named(); len(all) > 0 {
		t.Errorf("long after the last packet: %v", all)
	}
	echo := flow{"echo", netip.AddrPortFrom(client4, 3002), netip.AddrPortFrom(remote4, 3002)}
	pinged := b.tunnelled(t, "echo", b.fromClient(t, echo.packet()), echo.packet(), "flow_begun", "steer")
	b.fromNode(t, back(pinged), natted(echo, 40001).packet()).Is(t, "change", redirect, nil, "update_learned")
	for range 2 { // from the world alone
		many(b.Objects().EdgeWorld, "world", changed.reversed(), 8*few)
		many(b.Objects().EdgeWorld, "world", natted(echo, 40001).reversed(), 4*few)
	}
	wanted := []string{want, fmt.Sprintf("1 %v %v %v", echo.from, echo.to, pinged.Instance)}
	if all := named(); len(all) != 2 || !strings.HasPrefix(all[0], wanted[0]) || !strings.HasPrefix(all[1], wanted[1]) {
		t.Errorf("talkers %q of the world alone, want %q", all, wanted)
	}
}
