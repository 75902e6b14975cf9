package kit

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/gopacket/gopacket/pcapgo"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"proffer/lab/testbed"
)

// capture has a packet socket on every link of the star, at the router's ends: XDP in a
// node works before any socket there could see the packet.
type capture struct {
	bed  *testbed.Bed
	File string // for tshark, once stopped
	taps []*tap // in the order of bed.Nodes
}

// tap is the socket on a link.
type tap struct {
	node   *testbed.Node
	socket *os.File
	ended  chan struct{} // closed once the rest is complete
	frames []caught
	err    error
}

// caught is a frame, and when it was read.
type caught struct {
	Frame
	at time.Time
}

// Record captures until stop.
func Record(t *testing.T, bed *testbed.Bed) *capture {
	t.Helper()
	c := &capture{bed: bed, File: filepath.Join(t.TempDir(), "links.pcapng")}
	err := bed.Router.Do(func() error {
		for _, n := range bed.Nodes() {
			socket, err := packetSocket(n.Link)
			if err != nil {
				return fmt.Errorf("capture on %s: %w", n.Link, err)
			}
			c.taps = append(c.taps, &tap{node: n, socket: socket, ended: make(chan struct{})})
		}
		return nil
	})
	for _, tap := range c.taps {
		go func() {
			defer close(tap.ended)
			tap.err = tap.read()
		}()
	}
	t.Cleanup(func() {
		for _, tap := range c.taps {
			tap.socket.Close()
			<-tap.ended
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// packetSocket receives all frames of a link in this thread's namespace from now on.
func packetSocket(link string) (*os.File, error) {
	const buffer = 64 << 20   // a slow reader loses nothing
	const everything = 0x0300 // ETH_P_ALL in network order
	l, err := netlink.LinkByName(link)
	if err != nil {
		return nil, err
	}
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	err = errors.Join(
		unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, buffer),
		unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: everything, Ifindex: l.Attrs().Index}),
	)
	if err != nil {
		unix.Close(fd)
		return nil, err
	}
	return os.NewFile(uintptr(fd), link), nil
}

// read keeps all frames up to the link's mark.
func (tap *tap) read() error {
	raw, err := tap.socket.SyscallConn()
	if err != nil {
		return err
	}
	buffer := make([]byte, 1<<17)
	for {
		var size int
		var from unix.Sockaddr
		if closed := raw.Read(func(fd uintptr) bool {
			size, from, err = unix.Recvfrom(int(fd), buffer, unix.MSG_TRUNC)
			return err != unix.EAGAIN
		}); closed != nil {
			return closed
		}
		if err != nil {
			return err
		}
		if size > len(buffer) || size < Ethernet {
			return fmt.Errorf("a frame of %d bytes", size)
		}
		content := bytes.Clone(buffer[:size])
		if bytes.Contains(content, markOf(tap.node)) {
			if closed := raw.Control(func(fd uintptr) { err = dropped(int(fd)) }); closed != nil {
				return closed
			}
			return err
		}
		toNode := from.(*unix.SockaddrLinklayer).Pkttype == unix.PACKET_OUTGOING
		tap.frames = append(tap.frames, caught{parse(tap.node.Link, toNode, content), time.Now()})
	}
}

// dropped is an error if the kernel had no room for a frame.
func dropped(fd int) error {
	stats, err := unix.GetsockoptTpacketStats(fd, unix.SOL_PACKET, unix.PACKET_STATISTICS)
	if err == nil && stats.Drops > 0 {
		err = fmt.Errorf("%d frames are lost, this run shows nothing", stats.Drops)
	}
	return err
}

// mark begins what the last frame of a capture carries on every link.
const mark = "proffer: nothing follows on "

func markOf(n *testbed.Node) []byte { return []byte(mark + n.Link + ".") }

// Stop ends the capture once everything before it was read, writes the file, and returns the frames, each
// link's in order. Each link gets a datagram that nothing else looks like, with which its reader ends.
func (c *capture) Stop(t *testing.T) (frames []Frame) {
	t.Helper()
	c.markAll(t)
	var all []caught
	for _, tap := range c.taps {
		select {
		case <-tap.ended:
		case <-time.After(Patience):
			t.Fatalf("the last frame on %s does not come", tap.node.Link)
		}
		if tap.err != nil {
			t.Fatalf("capture on %s: %v", tap.node.Link, tap.err)
		}
		all = append(all, tap.frames...)
	}
	slices.SortStableFunc(all, func(a, b caught) int { return a.at.Compare(b.at) })
	if err := c.write(all); err != nil {
		t.Fatal(err)
	}
	for _, f := range all {
		frames = append(frames, f.Frame)
	}
	return frames
}

// write writes the file.
func (c *capture) write(all []caught) error {
	file, err := os.Create(c.File)
	if err != nil {
		return err
	}
	defer file.Close()
	var w *pcapgo.NgWriter
	number := map[string]int{}
	for i, n := range c.bed.Nodes() {
		link := pcapgo.NgInterface{Name: n.Link, LinkType: layers.LinkTypeEthernet, TimestampResolution: 9}
		if number[n.Link] = i; i == 0 {
			w, err = pcapgo.NewNgWriterInterface(file, link, pcapgo.DefaultNgWriterOptions)
		} else {
			_, err = w.AddInterface(link)
		}
		if err != nil {
			return err
		}
	}
	for _, f := range all {
		info := gopacket.CaptureInfo{Timestamp: f.at, CaptureLength: len(f.Bytes), Length: len(f.Bytes), InterfaceIndex: number[f.Link]}
		if err := w.WritePacket(info, f.Bytes); err != nil {
			return err
		}
	}
	return w.Flush()
}

func (c *capture) markAll(t *testing.T) {
	t.Helper()
	err := c.bed.Router.Do(func() error {
		for _, n := range c.bed.Nodes() {
			const discard = 9 // RFC 863; there is no listener, and tshark takes it for nothing else
			conn, err := net.DialUDP("udp6", &net.UDPAddr{Port: discard}, net.UDPAddrFromAddrPort(netip.AddrPortFrom(n.Addr, discard)))
			if err != nil {
				return err
			}
			_, err = conn.Write(markOf(n))
			conn.Close()
			if err != nil {
				return fmt.Errorf("mark %s: %w", n.Link, err)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// Count is the number of frames that a filter of tshark's matches.
func (c *capture) Count(t *testing.T, filter string) int {
	t.Helper()
	out, err := exec.Command(Program(t, "tshark"), "-r", c.File, "-n", "-Y", filter, "-T", "fields", "-e", "frame.number").Output()
	if err != nil {
		t.Fatalf("tshark: %v", err)
	}
	return len(strings.Fields(string(out)))
}
