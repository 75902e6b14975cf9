package e2e

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/gopacket/gopacket/pcapgo"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"proffer/lab/testbed"
)

// capture is dumpcap on every link of the star, at the router's ends: XDP in a
// node works before any socket there could see the packet.
type capture struct {
	bed     *testbed.Bed
	file    string
	dumpcap *testbed.Process
}

// record captures until stop.
func record(t *testing.T, bed *testbed.Bed) *capture {
	t.Helper()
	c := &capture{bed: bed, file: filepath.Join(t.TempDir(), "links.pcapng")}
	const buffer = "16"     // MiB a link: a slow reader loses nothing
	const queue = "1000000" // frames between dumpcap and its file
	args := []string{"-B", buffer, "-N", queue, "-w", c.file}
	for _, n := range bed.Nodes() {
		args = append(args, "-i", n.Link)
	}
	var err error
	c.dumpcap, err = bed.Router.StartCommand(exec.Command(program(t, "dumpcap"), args...))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.dumpcap.Stop() })
	eventually(t, "dumpcap captures", func() bool {
		select {
		case <-c.dumpcap.Done():
			t.Fatalf("dumpcap ended: %s", c.dumpcap.Log())
		default:
		}
		return strings.Contains(c.dumpcap.Log(), "File: ")
	})
	return c
}

// mark begins what the last frame of a capture carries on every link.
const mark = "proffer: nothing follows on "

func markOf(n *testbed.Node) []byte { return []byte(mark + n.Link + ".") }

// stop ends the capture once everything before it is in the file, and returns
// the frames, each link's in order. dumpcap is late by up to a second, so each
// link gets a datagram that nothing else looks like, which ends in the file.
func (c *capture) stop(t *testing.T) []frame {
	t.Helper()
	c.markAll(t)
	eventually(t, "every link's last frame is in the file", func() bool {
		text, err := os.ReadFile(c.file)
		return err == nil && !slices.ContainsFunc(c.bed.Nodes(), func(n *testbed.Node) bool {
			return !bytes.Contains(text, markOf(n))
		})
	})
	if err := c.dumpcap.Signal(unix.SIGINT); err != nil {
		t.Fatal(err)
	}
	if err := c.dumpcap.Wait(); err != nil {
		t.Fatalf("dumpcap: %v: %s", err, c.dumpcap.Log())
	}
	c.wantNothingLost(t)
	return slices.DeleteFunc(c.read(t), func(f frame) bool { return bytes.Contains(f.bytes, []byte(mark)) })
}

// wantNothingLost reads dumpcap's summary: frames that the kernel or
// itself had no room for. What it had not written yet came after the mark.
func (c *capture) wantNothingLost(t *testing.T) {
	t.Helper()
	losses := regexp.MustCompile(`on interface '(\w+)': \d+/\d+ \(pcap:(\d+)/dumpcap:(\d+)/`).FindAllStringSubmatch(c.dumpcap.Log(), -1)
	if len(losses) != len(c.bed.Nodes()) {
		t.Fatalf("dumpcap does not say what it lost: %s", c.dumpcap.Log())
	}
	for _, l := range losses {
		if l[2] != "0" || l[3] != "0" {
			t.Fatalf("frames on %s are lost, this run shows nothing: %s", l[1], c.dumpcap.Log())
		}
	}
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

// read returns the frames in the file.
func (c *capture) read(t *testing.T) []frame {
	t.Helper()
	file, err := os.Open(c.file)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	r, err := pcapgo.NewNgReader(file, pcapgo.DefaultNgReaderOptions)
	if err != nil {
		t.Fatal(err)
	}
	routers := c.routerMACs(t)
	var frames []frame
	for {
		data, info, err := r.ReadPacketData()
		if errors.Is(err, io.EOF) {
			return frames
		}
		if err != nil {
			t.Fatal(err)
		}
		link, err := r.Interface(info.InterfaceIndex)
		if err != nil {
			t.Fatal(err)
		}
		if len(data) < info.Length || len(data) < ethernet {
			t.Fatalf("a frame of %d bytes on %s was captured as %d", info.Length, link.Name, len(data))
		}
		frames = append(frames, parse(link.Name, bytes.Equal(data[6:12], routers[link.Name]), data))
	}
}

// routerMACs show a frame's direction.
func (c *capture) routerMACs(t *testing.T) map[string]net.HardwareAddr {
	t.Helper()
	macs := map[string]net.HardwareAddr{}
	err := c.bed.Router.Do(func() error {
		for _, n := range c.bed.Nodes() {
			link, err := netlink.LinkByName(n.Link)
			if err != nil {
				return err
			}
			macs[n.Link] = link.Attrs().HardwareAddr
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return macs
}
