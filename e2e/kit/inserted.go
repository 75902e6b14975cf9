package kit

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"proffer/lab/farmrun"
	"proffer/lab/testbed"
	"proffer/lab/traffic/responder"
	"proffer/topo"
	"proffer/wire"
)

// With `wire: insert` the segments travel inside the client's own packet, as in
// the papers (6LB §II): (lb, s1::ca, s2::cf, vip).

// Carried returns settings whose service is as change makes it, at every LB.
func Carried(s farmrun.Settings, change func(*topo.Service)) farmrun.Settings {
	before := s.LB
	s.LB = func(lb *topo.LB) {
		if before != nil {
			before(lb)
		}
		change(&lb.Services[0])
	}
	return s
}

// IsInserted distinguishes an SRH before TCP from an SRH before a packet.
func (f *Frame) IsInserted() bool {
	return f.Ip.Next == Routing && f.Bytes[Ethernet+IPv6] == tcp
}

// TakeOut lets every frame with an inserted SRH show the packet that its ends
// know: without it, for the last segment. The list is then the whole one, from
// the sender to that segment.
func TakeOut(frames []Frame) {
	for i := range frames {
		f := &frames[i]
		if !f.IsInserted() {
			continue
		}
		list, next, rest := segments(f.Bytes[Ethernet+IPv6:])
		packet := slices.Concat(f.Bytes[Ethernet:Ethernet+IPv6], rest)
		binary.BigEndian.PutUint16(packet[4:], uint16(len(rest)))
		packet[6] = next
		copy(packet[24:], list[len(list)-1].AsSlice())
		f.List, f.inner, f.TCP = list, packet, parseTCP(packet)
	}
}

// Left is the field Segments Left of an SRH.
func (f *Frame) Left() int { return int(f.Bytes[Ethernet+IPv6+3]) }

// wantInserted: what the LB sends has the list (lb, segments…, vip), 8 + 16 bytes
// a segment, and is otherwise the client's packet one hop on.
func (w *Recorded) WantInserted(t *testing.T, pairs []pair, choices int) {
	t.Helper()
	for _, p := range pairs {
		list, was, is := p.Out.List, p.In.Ip, p.Out.Ip
		want := 1
		if p.In.TCP.Has(wire.SYN) {
			want = choices
			w.wantList(t, list[1:len(list)-1], choices)
		} else if Function(list[1]) != wire.AckStickiness {
			t.Errorf("%v goes by %v", p.In.TCP, list)
		}
		if got, bytes := len(p.Out.Bytes)-len(p.In.Bytes), 8+16*(want+2); got != bytes || p.Out.overhead() != bytes {
			t.Errorf("%v is %d bytes longer with %v, want %d", p.In.TCP, got, list, bytes)
		}
		if p.Out.Left() != want || is.Destination != list[1] || list[len(list)-1] != w.Bed.VIP {
			t.Errorf("%v to %v has %d segments left of %v", p.In.TCP, is.Destination, p.Out.Left(), list)
		}
		if is.source != was.source || is.Class != was.Class || is.label != was.label || is.hops != was.hops-1 {
			t.Errorf("%v became %v", was, is)
		}
		if want := w.insertedSource(t, p); list[0] != want {
			t.Errorf("the first segment of %v is %v, want %v", p.In.TCP, list[0], want)
		}
	}
}

// insertedSource is signedSource of an inserted list, whose own first segment
// is the tag's place.
func (w *Recorded) insertedSource(t *testing.T, p pair) netip.Addr {
	t.Helper()
	out := *p.Out
	out.List = p.Out.List[1:]
	return w.signedSource(t, pair{p.In, &out})
}

// wantVisits: every SYN visits so many servers, each by the next segment of its
// list; the one where it stays takes it out.
func (w *Recorded) WantVisits(t *testing.T, pairs []pair, each int) {
	t.Helper()
	offers, visits := 0, 0
	for _, p := range pairs {
		if p.In.TCP.Has(wire.SYN) {
			offers++
		}
	}
	for _, n := range w.Bed.Servers {
		for _, f := range w.On(n, true) {
			if !f.IsInserted() || !f.TCP.Has(wire.SYN) {
				continue
			}
			visits++
			if at := f.List[len(f.List)-1-f.Left()]; f.Ip.Destination != at || Locator(at) != n.Locator {
				t.Errorf("%v came to %s by %v with %d of %v left", f.TCP, n.Name, f.Ip.Destination, f.Left(), f.List)
			}
		}
	}
	if offers == 0 || visits != each*offers {
		t.Errorf("%d offers visited %d servers, want %d each", offers, visits, each)
	}
}

// wantInsertedSignals: servers signal to the LB by (server, lb::cs, client), 56 bytes
// in the answer itself; the LB sends that to the client without them.
func (w *Recorded) WantInsertedSignals(t *testing.T) {
	t.Helper()
	lb := w.Bed.LBs[0]
	sent := map[string]int{}
	opened := map[flow]bool{}
	for _, f := range w.On(lb, false) {
		if !f.Encapsulated() {
			sent[f.packet()]++
		}
	}
	for _, f := range w.On(lb, true) {
		if !f.Encapsulated() {
			continue
		}
		fn := Function(f.Ip.Destination)
		if !f.IsInserted() || f.overhead() != 56 || f.Left() != 1 || fn != wire.CreateStickiness && fn != wire.RemoveStickiness {
			t.Errorf("a server signalled %v to the LB by %v", f.TCP, f.List)
		}
		if f.TCP.Has(wire.SYN | wire.ACK) {
			opened[f.TCP.flow(w.Bed.VIP)] = true
		}
		if sent[f.packet()]--; sent[f.packet()] < 0 {
			t.Errorf("the LB kept %v, or changed more of it than the MSS", f.TCP)
		}
	}
	for _, left := range sent {
		if left > 0 {
			t.Errorf("the LB sent the client %d packets without a signal", left)
		}
	}
	if len(opened) != Connections {
		t.Errorf("the LB saw %d connections open, of %d", len(opened), Connections)
	}
}

// megabyte is the file of a long transfer.
const megabyte = 1_000_000

// WantMegabytes downloads and uploads one, and compares.
func WantMegabytes(t *testing.T, bed *testbed.Bed, url string) {
	t.Helper()
	dir := t.TempDir()
	want := filepath.Join(dir, "want")
	digest := WriteBytes(t, want, megabyte)
	got := In(t, bed.Client, "curl", "-sS", "--fail", "--max-time", "60", "-o", filepath.Join(dir, "got"),
		"-T", want, url+"/bytes", "-w", "%{size_upload}")
	if got != fmt.Sprint(megabyte) || Read(t, filepath.Join(dir, "got")) != digest+fmt.Sprintf(" %d\n", megabyte) {
		t.Errorf("uploaded %s bytes: %q, want %s", got, Read(t, filepath.Join(dir, "got")), digest)
	}
	body := In(t, bed.Client, "curl", "-sS", "--fail", "--max-time", "60", fmt.Sprintf("%s/bytes/%d", url, megabyte))
	if body != Read(t, want) {
		t.Errorf("downloaded %d bytes that are not those of /bytes/%d", len(body), megabyte)
	}
}

// wantQuestions: each flow's first packet at an LB asks, all later ones are
// steered, and all of it is inserted.
func (w *Recorded) WantQuestions(t *testing.T, lb *testbed.Node, flows int) {
	t.Helper()
	asked, steered := map[flow]bool{}, map[flow]bool{}
	for _, f := range w.On(lb, false) {
		if !f.Encapsulated() {
			continue
		}
		if !f.IsInserted() || f.overhead() != 8+16*len(f.List) {
			t.Errorf("%v left %s by %v", f.TCP, lb.Name, f.List)
		}
		switch Function(f.Ip.Destination) {
		case wire.RecoverStickiness:
			asked[f.TCP.flow(w.Bed.VIP)] = true
		case wire.AckStickiness:
			steered[f.TCP.flow(w.Bed.VIP)] = true
		}
	}
	answered := map[flow]bool{}
	for _, f := range w.On(lb, true) {
		if f.IsInserted() && f.overhead() == 56 && Function(f.Ip.Destination) == wire.CreateStickiness {
			answered[f.TCP.flow(w.Bed.VIP)] = true
		}
	}
	if len(asked) != flows || len(answered) != flows || len(steered) != flows {
		t.Errorf("of %d flows %s asked for %d, was told of %d and steered %d", flows, lb.Name, len(asked), len(answered), len(steered))
	}
}

// WriteBytes writes what /bytes/size answers to a file and returns its digest.
func WriteBytes(t *testing.T, path string, size int64) string {
	t.Helper()
	file, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	hash := sha256.New()
	if _, err := io.Copy(io.MultiWriter(hash, file), responder.Bytes(size)); err != nil {
		t.Fatal(err)
	}
	if err := file.Close(); err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("%x", hash.Sum(nil))
}

func Read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// Acknowledges is the acknowledgement number.
func (f *Frame) Acknowledges() uint32 { return binary.BigEndian.Uint32(f.inner[IPv6+8:]) }

// options reads a TCP header's, by kind, without padding.
func (f *Frame) options() map[uint8]string {
	const end, nop = 0, 1
	found := map[uint8]string{}
	header := f.inner[IPv6:]
	for b := header[20 : 4*int(header[12]>>4)]; len(b) > 0 && b[0] != end; {
		if b[0] == nop {
			b = b[1:]
			continue
		}
		found[b[0]] = string(b[2:b[1]])
		b = b[b[1]:]
	}
	return found
}

// SynACKOptions are those of the SYN-ACKs that left servers, or came to clients.
func (w *Recorded) SynACKOptions(nodes ...*testbed.Node) (all []map[uint8]string) {
	for _, n := range nodes {
		for _, f := range w.On(n, n == w.Bed.Client) {
			if f.TCP.Has(wire.SYN|wire.ACK) && f.TCP.From.Addr() == w.Bed.VIP {
				all = append(all, f.options())
			}
		}
	}
	return all
}
