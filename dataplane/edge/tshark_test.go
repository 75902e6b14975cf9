package edge_test

import (
	"encoding/binary"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"proffer/proof/rig"
	"proffer/wire"
)

// TestTshark: tshark decodes every layer of the packets to nodes, of probes and of packets to clients, finds
// no fault and every checksum good, and reads the instance in the VNI.
func TestTshark(t *testing.T) {
	b := newBench(t, rig.Hits{})
	var frames [][]byte
	var want []string
	for port := range 10 {
		for _, f := range []flow{from4("tcp", 2000+port), from6("udp", 2000+port), from4("echo", 2000+port)} {
			out := b.fromClient(t, f.later())
			var to wire.Tunnel
			if f.kind == "tcp" { // a question
				to = b.asks(t, f.String(), out, f.later(), 1)
			} else {
				to = b.tunnelled(t, f.String(), out, f.packet(), "flow_begun", "steer")
			}
			outer, inner := "ip", "ip"
			if to.To.Is6() {
				outer = "ipv6"
			}
			if f.from.Addr().Is6() {
				inner = "ipv6"
			}
			upper := map[string]string{"tcp": "tcp:data", "udp": "udp:data", "echo": "icmp:data"}[f.kind]
			frames = append(frames, out.Frame)
			want = append(want, fmt.Sprintf("eth:ethertype:%s:udp:vxlan:eth:ethertype:%s:%s|0x0800|%d|", outer, inner, upper, to.Instance.VNI()))
		}
	}
	for port, f := range []flow{from4("tcp", 50), from6("tcp", 51), from4("udp", 52), from6("udp", 53)} {
		changed, to := b.bind(t, f, 40000+port, false)
		packet := changed.reversed().packet()
		if f.kind == "tcp" {
			packet = worldly(changed, wire.TCP{Seq: 9, Ack: 7, Flags: wire.ACK, Options: []byte{1, 1, 8, 10, 0, 0, 0, 9, 0, 0, 0, 5}}, "data")
		}
		to.Flow = changed.hash()
		frames = append(frames, b.fromNode(t, unboundBy(to), packet).Frame)
		want = append(want, map[string]string{
			"tcp4": "eth:ethertype:ip:tcp|||", "tcp6": "eth:ethertype:ipv6:tcp|||",
			"udp4": "eth:ethertype:ip:icmp:ip:udp|||", "udp6": "eth:ethertype:ipv6:icmpv6:ipv6:udp|||",
		}[f.kind+map[bool]string{true: "4", false: "6"}[f.from.Addr().Is4()]])
	}
	probe := wire.IP{Source: lbAddr[0], Destination: nodeAddr[0], HopLimit: wire.DefaultHopLimit}
	frames = append(frames, wire.Frame(nodeMAC(1), b.macs[nodesLink], probe.UDP(40000, wire.VXLANPort, wire.Probe(1))))
	want = append(want, fmt.Sprintf("eth:ethertype:ip:udp:vxlan:eth:ethertype:ip|0x0800|%d|", wire.Instance{Server: 1}.VNI()))
	for i, line := range dissect(t, frames) {
		if line != want[i] {
			t.Errorf("tshark reads\n%s\nwant\n%s", line, want[i])
		}
	}
}

// dissect returns a line of tshark's for each frame: the protocols, the flags, the VNI, and its
// warnings, among them those about checksums.
func dissect(t *testing.T, frames [][]byte) []string {
	t.Helper()
	const magic, ethernet = 0xa1b2c3d4, 1
	file := binary.LittleEndian.AppendUint32(nil, magic)
	for _, word := range []uint32{4<<16 | 2, 0, 0, 65535, ethernet} {
		file = binary.LittleEndian.AppendUint32(file, word)
	}
	for i, f := range frames {
		for _, word := range []int{i, 0, len(f), len(f)} {
			file = binary.LittleEndian.AppendUint32(file, uint32(word))
		}
		file = append(file, f...)
	}
	path := filepath.Join(t.TempDir(), "edge.pcap")
	must(t, os.WriteFile(path, file, 0o644))
	out, err := exec.Command("tshark", "-r", path, "-n", "--disable-protocol", "http", "-T", "fields", "-E", "separator=|",
		"-o", "ip.check_checksum:TRUE", "-o", "tcp.check_checksum:TRUE", "-o", "udp.check_checksum:TRUE", "-o", "udp.ignore_ipv6_zero_checksum:TRUE", // RFC 6935
		"-e", "frame.protocols", "-e", "vxlan.flags", "-e", "vxlan.vni", "-e", "_ws.expert.message").Output()
	if err != nil {
		t.Fatalf("tshark: %v", err)
	}
	lines := strings.Split(strings.TrimSuffix(string(out), "\n"), "\n")
	if len(lines) != len(frames) {
		t.Fatalf("tshark reads %d packets of %d", len(lines), len(frames))
	}
	return lines
}
