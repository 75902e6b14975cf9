package e2e

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

// carried returns settings whose service is as change makes it, at every LB.
func carried(s farmrun.Settings, change func(*topo.Service)) farmrun.Settings {
	before := s.LB
	s.LB = func(lb *topo.LB) {
		if before != nil {
			before(lb)
		}
		change(&lb.Services[0])
	}
	return s
}

func inserting(svc *topo.Service) { svc.Wire = topo.Insert }

// isInserted distinguishes an SRH before TCP from an SRH before a packet.
func (f *frame) isInserted() bool {
	return f.ip.next == routing && f.bytes[ethernet+ipv6] == tcp
}

// takeOut lets every frame with an inserted SRH show the packet that its ends
// know: without it, for the last segment. The list is then the whole one, from
// the sender to that segment.
func takeOut(frames []frame) {
	for i := range frames {
		f := &frames[i]
		if !f.isInserted() {
			continue
		}
		list, next, rest := segments(f.bytes[ethernet+ipv6:])
		packet := slices.Concat(f.bytes[ethernet:ethernet+ipv6], rest)
		binary.BigEndian.PutUint16(packet[4:], uint16(len(rest)))
		packet[6] = next
		copy(packet[24:], list[len(list)-1].AsSlice())
		f.list, f.inner, f.tcp = list, packet, parseTCP(packet)
	}
}

// left is the field Segments Left of an SRH.
func (f *frame) left() int { return int(f.bytes[ethernet+ipv6+3]) }

// wantInserted: what the LB sends has the list (lb, segments…, vip), 8 + 16 bytes
// a segment, and is otherwise the client's packet one hop on.
func (w *recorded) wantInserted(t *testing.T, pairs []pair, choices int) {
	t.Helper()
	for _, p := range pairs {
		list, was, is := p.out.list, p.in.ip, p.out.ip
		want := 1
		if p.in.tcp.has(wire.SYN) {
			want = choices
			w.wantList(t, list[1:len(list)-1], choices)
		} else if function(list[1]) != wire.AckStickiness {
			t.Errorf("%v goes by %v", p.in.tcp, list)
		}
		if got, bytes := len(p.out.bytes)-len(p.in.bytes), 8+16*(want+2); got != bytes || p.out.overhead() != bytes {
			t.Errorf("%v is %d bytes longer with %v, want %d", p.in.tcp, got, list, bytes)
		}
		if p.out.left() != want || is.destination != list[1] || list[len(list)-1] != w.bed.VIP {
			t.Errorf("%v to %v has %d segments left of %v", p.in.tcp, is.destination, p.out.left(), list)
		}
		if is.source != was.source || is.class != was.class || is.label != was.label || is.hops != was.hops-1 {
			t.Errorf("%v became %v", was, is)
		}
		if want := w.insertedSource(t, p); list[0] != want {
			t.Errorf("the first segment of %v is %v, want %v", p.in.tcp, list[0], want)
		}
	}
}

// insertedSource is signedSource of an inserted list, whose own first segment
// is the tag's place.
func (w *recorded) insertedSource(t *testing.T, p pair) netip.Addr {
	t.Helper()
	out := *p.out
	out.list = p.out.list[1:]
	return w.signedSource(t, pair{p.in, &out})
}

// wantVisits: every SYN visits so many servers, each by the next segment of its
// list; the one where it stays takes it out.
func (w *recorded) wantVisits(t *testing.T, pairs []pair, each int) {
	t.Helper()
	offers, visits := 0, 0
	for _, p := range pairs {
		if p.in.tcp.has(wire.SYN) {
			offers++
		}
	}
	for _, n := range w.bed.Servers {
		for _, f := range w.on(n, true) {
			if !f.isInserted() || !f.tcp.has(wire.SYN) {
				continue
			}
			visits++
			if at := f.list[len(f.list)-1-f.left()]; f.ip.destination != at || locator(at) != n.Locator {
				t.Errorf("%v came to %s by %v with %d of %v left", f.tcp, n.Name, f.ip.destination, f.left(), f.list)
			}
		}
	}
	if offers == 0 || visits != each*offers {
		t.Errorf("%d offers visited %d servers, want %d each", offers, visits, each)
	}
}

// wantInsertedSignals: servers signal to the LB by (server, lb::cs, client), 56 bytes
// in the answer itself; the LB sends that to the client without them.
func (w *recorded) wantInsertedSignals(t *testing.T) {
	t.Helper()
	lb := w.bed.LBs[0]
	sent := map[string]int{}
	opened := map[flow]bool{}
	for _, f := range w.on(lb, false) {
		if !f.encapsulated() {
			sent[f.packet()]++
		}
	}
	for _, f := range w.on(lb, true) {
		if !f.encapsulated() {
			continue
		}
		fn := function(f.ip.destination)
		if !f.isInserted() || f.overhead() != 56 || f.left() != 1 || fn != wire.CreateStickiness && fn != wire.RemoveStickiness {
			t.Errorf("a server signalled %v to the LB by %v", f.tcp, f.list)
		}
		if f.tcp.has(wire.SYN | wire.ACK) {
			opened[f.tcp.flow(w.bed.VIP)] = true
		}
		if sent[f.packet()]--; sent[f.packet()] < 0 {
			t.Errorf("the LB kept %v, or changed more of it than the MSS", f.tcp)
		}
	}
	for _, left := range sent {
		if left > 0 {
			t.Errorf("the LB sent the client %d packets without a signal", left)
		}
	}
	if len(opened) != connections {
		t.Errorf("the LB saw %d connections open, of %d", len(opened), connections)
	}
}

// TestInsert holds the frames on the links to docs/design/wire.md on inserted lists.
func TestInsert(t *testing.T) {
	for _, c := range []struct {
		policy          string
		choices, visits int
	}{
		{"hunt:static:1000", 2, 1},
		{"hunt:static:0", 2, 2},
		{"hunt:static:1000", 4, 1},
		{"hunt:static:0", 4, 4},
	} {
		t.Run(fmt.Sprintf("%s of %d", c.policy, c.choices), func(t *testing.T) {
			s := carried(settings(t, c.policy), inserting)
			s.Choices = c.choices
			w, file := listen(t, 5, s)
			takeOut(w.frames)
			w.wantPlainClient(t, connections)
			pairs := w.forwarded(t)
			if len(pairs) < connections {
				t.Fatalf("%d packets through the LB for %d connections", len(pairs), connections)
			}
			w.wantInserted(t, pairs, c.choices)
			w.wantVisits(t, pairs, c.visits)
			w.wantInsertedSignals(t)
			judge(t, file, len(pairs))
		})
	}
}

// megabyte is the file of a long transfer.
const megabyte = 1_000_000

// wantMegabytes downloads and uploads one, and compares.
func wantMegabytes(t *testing.T, bed *testbed.Bed, url string) {
	t.Helper()
	dir := t.TempDir()
	want := filepath.Join(dir, "want")
	digest := writeBytes(t, want, megabyte)
	got := in(t, bed.Client, "curl", "-sS", "--fail", "--max-time", "60", "-o", filepath.Join(dir, "got"),
		"-T", want, url+"/bytes", "-w", "%{size_upload}")
	if got != fmt.Sprint(megabyte) || read(t, filepath.Join(dir, "got")) != digest+fmt.Sprintf(" %d\n", megabyte) {
		t.Errorf("uploaded %s bytes: %q, want %s", got, read(t, filepath.Join(dir, "got")), digest)
	}
	body := in(t, bed.Client, "curl", "-sS", "--fail", "--max-time", "60", fmt.Sprintf("%s/bytes/%d", url, megabyte))
	if body != read(t, want) {
		t.Errorf("downloaded %d bytes that are not those of /bytes/%d", len(body), megabyte)
	}
}

// TestInsertedBytes: segments inside the packets leave what they carry alone,
// also that of another flow's server.
func TestInsertedBytes(t *testing.T) {
	for _, policy := range []string{"hunt:static:0", "hunt:static:1000"} {
		bed := up(t, testbed.Config{Servers: 3})
		serve(t, bed)
		start(t, bed, carried(settings(t, policy), inserting))
		for range 3 {
			wantMegabytes(t, bed, url)
		}
	}
	bed := up(t, testbed.Config{Servers: 2})
	for _, n := range bed.Servers {
		nginx(t, bed, n, nil)
	}
	farm := start(t, bed, carried(settings(t, "hunt:static:0"), inserting))
	const flows = 10
	for range flows {
		if got := in(t, bed.Client, "curl", "-sS", "--fail", url+"/", url+"/"); got != "s1\ns1\n" && got != "s2\ns2\n" {
			t.Errorf("two requests of one connection were answered %q", got)
		}
	}
	if n := counter(t, farm, "accept_force", bed.Servers...); n != flows {
		t.Errorf("%d connections taken by the last candidate, want %d", n, flows)
	}
}

// TestInsertRecovers: another LB finds every flow's owner by inserted questions,
// and learns of it by an inserted answer.
func TestInsertRecovers(t *testing.T) {
	const flows = 50
	bed := up(t, testbed.Config{Servers: 4, LBs: 2})
	serve(t, bed)
	farm := start(t, bed, carried(settings(t, "hunt:static:0"), inserting))
	announce(t, bed, bed.LBs[0])
	conns := hold(t, bed, "tcp6", vip(bed), flows)
	c := record(t, bed)
	announce(t, bed, bed.LBs[1])
	askAll(t, conns)
	askAll(t, conns)
	w := recorded{bed, c.stop(t)}
	takeOut(w.frames)
	w.wantQuestions(t, bed.LBs[1], flows)
	if n := counter(t, farm, "stickiness_recovered", bed.LBs[1]); n != flows {
		t.Errorf("%d flows recovered, want %d", n, flows)
	}
	if n := counter(t, farm, "pass_on_not_mine", bed.Servers...); n < flows { // the last candidate has it
		t.Errorf("%d questions passed on, want at least %d", n, flows)
	}
	wantNoStray(t, farm)
	judge(t, c.file, 4*flows)
}

// wantQuestions: each flow's first packet at an LB asks, all later ones are
// steered, and all of it is inserted.
func (w *recorded) wantQuestions(t *testing.T, lb *testbed.Node, flows int) {
	t.Helper()
	asked, steered := map[flow]bool{}, map[flow]bool{}
	for _, f := range w.on(lb, false) {
		if !f.encapsulated() {
			continue
		}
		if !f.isInserted() || f.overhead() != 8+16*len(f.list) {
			t.Errorf("%v left %s by %v", f.tcp, lb.Name, f.list)
		}
		switch function(f.ip.destination) {
		case wire.RecoverStickiness:
			asked[f.tcp.flow(w.bed.VIP)] = true
		case wire.AckStickiness:
			steered[f.tcp.flow(w.bed.VIP)] = true
		}
	}
	answered := map[flow]bool{}
	for _, f := range w.on(lb, true) {
		if f.isInserted() && f.overhead() == 56 && function(f.ip.destination) == wire.CreateStickiness {
			answered[f.tcp.flow(w.bed.VIP)] = true
		}
	}
	if len(asked) != flows || len(answered) != flows || len(steered) != flows {
		t.Errorf("of %d flows %s asked for %d, was told of %d and steered %d", flows, lb.Name, len(asked), len(answered), len(steered))
	}
}

// TestKernelEndInserted: the kernel's End (RFC 8986 §4.1) moves an inserted offer
// on to the next candidate, as it does an encapsulated one.
func TestKernelEndInserted(t *testing.T) {
	const flows = 20
	bed := up(t, testbed.Config{Servers: 2})
	serve(t, bed)
	farm := start(t, bed, carried(settings(t, "hunt:always"), inserting))
	s1, s2 := bed.Servers[0], bed.Servers[1]
	if err := farm.Daemon(s1).Stop(); err != nil {
		t.Fatal(err)
	}
	kernelSRv6(t, s1, s1.Locator, "End")
	c := record(t, bed)
	for _, port := range portsTo(t, bed, 0, flows) {
		if got := serverOf(t, bed, port); got != s2.Name {
			t.Errorf("an offer to s1, s2 past the kernel of s1 was served by %q", got)
		}
	}
	settled(t, bed)
	w := recorded{bed, c.stop(t)}
	takeOut(w.frames)
	moved := 0
	for _, f := range w.on(s1, false) {
		if f.isInserted() && f.tcp.has(wire.SYN) && locator(f.ip.destination) == s2.Locator && f.left() == 1 {
			moved++
		}
	}
	if taken := counter(t, farm, "accept_force", s2); moved < flows || taken < flows {
		t.Errorf("the kernel of s1 moved %d offers on and s2 took %d as the last candidate, want %d", moved, taken, flows)
	}
	judge(t, c.file, flows)
}

// writeBytes writes what /bytes/size answers to a file and returns its digest.
func writeBytes(t *testing.T, path string, size int64) string {
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

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
