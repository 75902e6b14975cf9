package guests

import (
	"os"
	"slices"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"proffer/e2e/kit"
	"proffer/lab/testbed"
	"proffer/wire"
)

// byHand are connections that no kernel has, so that their ACK goes out
// on the test's demand.
type byHand struct {
	bed   *testbed.Bed
	first int        // client port of the first
	mu    sync.Mutex // guards all that follows
	flows []handFlow
}

// handFlow is what a client has received.
type handFlow struct {
	isn                   uint32 // of the server, once opened
	opened, served, reset bool
}

// handshakes opens flows up to the SYN-ACK.
func handshakes(t *testing.T, bed *testbed.Bed, first, flows int) *byHand {
	t.Helper()
	h := &byHand{bed: bed, first: first, flows: make([]handFlow, flows)}
	h.listen(t)
	h.open(t)
	return h
}

// open sends every SYN, perhaps once more, and waits for its answer.
func (h *byHand) open(t *testing.T) {
	t.Helper()
	h.mu.Lock()
	clear(h.flows)
	h.mu.Unlock()
	var syns [][]byte
	for i := range h.heard() {
		syns = append(syns, h.segment(i, wire.TCP{Seq: h.isn(i), Flags: wire.SYN}, ""))
	}
	kit.SendRaw(t, h.bed, syns...)
	h.until(t, "every SYN is answered", func(f handFlow) bool { return f.opened })
}

// isn is the client's initial sequence number.
func (h *byHand) isn(i int) uint32 { return uint32(1000 * i) }

// getName is the request, which comes with the ACK.
const getName = "GET /name HTTP/1.0\r\n\r\n"

// ask acknowledges every SYN-ACK and asks for a page with it.
func (h *byHand) ask(t *testing.T) {
	t.Helper()
	var acks [][]byte
	for i, f := range h.heard() {
		tcp := wire.TCP{Seq: h.isn(i) + 1, Ack: f.isn + 1, Flags: wire.PSH | wire.ACK}
		acks = append(acks, h.segment(i, tcp, getName))
	}
	kit.SendRaw(t, h.bed, acks...)
}

// wait returns how many were answered and how many reset, when all were, and
// gives them up, so that no server repeats itself.
func (h *byHand) wait(t *testing.T) (served, reset int) {
	t.Helper()
	h.until(t, "every connection is served or reset", func(f handFlow) bool { return f.served || f.reset })
	var aborts [][]byte
	for i, f := range h.heard() {
		if f.reset {
			reset++
			continue
		}
		served++
		tcp := wire.TCP{Seq: h.isn(i) + 1 + uint32(len(getName)), Flags: wire.RST}
		aborts = append(aborts, h.segment(i, tcp, ""))
	}
	kit.SendRaw(t, h.bed, aborts...)
	return served, reset
}

func (h *byHand) until(t *testing.T, what string, holds func(handFlow) bool) {
	t.Helper()
	kit.Eventually(t, what, func() bool {
		return !slices.ContainsFunc(h.heard(), func(f handFlow) bool { return !holds(f) })
	})
}

// heard is what all flows have heard so far.
func (h *byHand) heard() []handFlow {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.flows)
}

// segment is a segment of flow i, from the unused address.
func (h *byHand) segment(i int, tcp wire.TCP, payload string) []byte {
	tcp.From, tcp.To = uint16(h.first+i), testbed.Port
	return wire.IP{Source: kit.Unused, Destination: h.bed.VIP, HopLimit: wire.DefaultHopLimit}.TCP(tcp, []byte(payload))
}

// listen receives frames for the unused address, until the test ends.
func (h *byHand) listen(t *testing.T) {
	t.Helper()
	const ipv6 = 0xdd86 // ETH_P_IPV6 in network order
	var fd int
	err := h.bed.Client.Do(func() (err error) {
		fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, ipv6)
		return err
	})
	if err != nil {
		t.Fatalf("packet socket: %v", err)
	}
	link := os.NewFile(uintptr(fd), "the client's link")
	t.Cleanup(func() { link.Close() })
	go func() {
		frame := make([]byte, testbed.MTU+kit.Ethernet)
		for {
			n, err := link.Read(frame)
			if err != nil {
				return // closed
			}
			h.hear(frame[kit.Ethernet:n])
		}
	}()
}

// hear notes a frame. The server's first word after the handshake is data, for
// the request came with the ACK.
func (h *byHand) hear(packet []byte) {
	ip, tcp, payload, err := wire.ParseTCP(packet)
	if err != nil || ip.Destination != kit.Unused {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	i := int(tcp.To) - h.first
	if i < 0 || i >= len(h.flows) {
		return
	}
	f := &h.flows[i]
	switch {
	case tcp.Flags&wire.RST != 0:
		f.reset = true
	case tcp.Flags&wire.SYN != 0:
		f.isn, f.opened = tcp.Seq, true
	case len(payload) > 0:
		f.served = true
	}
}
