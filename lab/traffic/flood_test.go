package traffic

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"
	"unsafe"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"proffer/lab/traffic/raw"
)

// received is what the interface has got so far.
func (s *space) received() (n uint64) {
	s.t.Helper()
	s.do(func() error {
		link, err := netlink.LinkByName(device)
		if err == nil {
			n = link.Attrs().Statistics.RxPackets
		}
		return err
	})
	return n
}

// tcp reads a counter of /proc/net/snmp.
func (s *space) tcp(name string) (n int) {
	s.t.Helper()
	s.do(func() error {
		text, err := os.ReadFile("/proc/thread-self/net/snmp")
		if err != nil {
			return err
		}
		var names []string
		for line := range strings.Lines(string(text)) {
			fields := strings.Fields(line)
			if fields[0] != "Tcp:" {
				continue
			}
			if names == nil {
				names = fields
				continue
			}
			for i, field := range names {
				if field == name {
					n, err = strconv.Atoi(fields[i])
					return err
				}
			}
		}
		return fmt.Errorf("no counter Tcp %s", name)
	})
	return n
}

var spoofed = map[string]netip.Prefix{
	vip:  netip.MustParsePrefix("2001:db8:5::/48"),
	vip4: netip.MustParsePrefix("198.51.100.0/24"),
}

// Every SYN that Flood counts as sent is a SYN to the kernel at the other end, which
// answers those of a listener; no other frame is like it.
func TestFloodIsAFloodOfSYNs(t *testing.T) {
	for _, to := range []string{vip, vip4} {
		t.Run(to, func(t *testing.T) {
			client, server := linked(t)
			defer server.listen(to).Close()
			flood := raw.Flood{Interface: device, To: netip.MustParseAddrPort(to), Clients: spoofed[to],
				Rate: 50_000, For: 300 * ms, Seed: 1, Enter: client.enter}
			sent, err := flood.Run(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if limit := int(sent.Elapsed.Seconds()*flood.Rate) + 1; sent.Frames > limit || sent.Frames == 0 {
				t.Errorf("%d frames in %v, want some and at most %d", sent.Frames, sent.Elapsed, limit)
			}
			waitFor(t, func() bool { return server.tcp("InSegs") >= sent.Frames })
			if got, wrong := server.tcp("InSegs"), server.tcp("InCsumErrors"); got != sent.Frames || wrong != 0 {
				t.Errorf("%d segments came, %d of them wrong, want %d and none", got, wrong, sent.Frames)
			}
			if answers := client.received(); answers < 100 { // the backlog bounds them
				t.Errorf("the listener sent %d frames, want SYN-ACKs", answers)
			}
			t.Logf("%d frames at %.0f/s", sent.Frames, sent.Rate())
		})
	}
}

func waitFor(t *testing.T, ready func() bool) {
	t.Helper()
	for end := time.Now().Add(5 * time.Second); !ready() && time.Now().Before(end); {
		time.Sleep(ms)
	}
}

func TestSYNsAreRandomWhereTheyShouldBe(t *testing.T) {
	const seed, n = 3, 4000
	header := append(make([]byte, 12), 0x86, 0xdd)
	for to, clients := range map[string]string{vip: "2001:db8:5:a000::/51", vip4: "198.51.96.0/21"} {
		prefix := netip.MustParsePrefix(clients)
		binary.BigEndian.PutUint16(header[12:], map[string]uint16{vip: unix.ETH_P_IPV6, vip4: unix.ETH_P_IP}[to])
		syns, err := raw.NewSYNMaker(header, netip.MustParseAddrPort(to), prefix, rand.New(rand.NewPCG(seed, 0)))
		if err != nil {
			t.Fatal(err)
		}
		sources, ports, isns := map[netip.Addr]bool{}, map[layers.TCPPort]bool{}, map[uint32]bool{}
		for i := range n {
			packet := gopacket.NewPacket(syns.Next(i), layers.LayerTypeEthernet, gopacket.Default)
			source, tcp := assertSYN(t, packet, to)
			if !prefix.Contains(source) || tcp.SrcPort < 1024 {
				t.Fatalf("frame %d (seed %d): from %s port %d", i, seed, source, tcp.SrcPort)
			}
			sources[source], ports[tcp.SrcPort], isns[tcp.Seq] = true, true, true
		}
		// 4,000 of 2,048 addresses: 1,757 are expected; of 64,512 ports 3,879.
		if len(sources) < 1700 || len(ports) < 3800 || len(isns) < 3990 {
			t.Errorf("%s (seed %d): %d addresses, %d ports, %d sequence numbers", to, seed, len(sources), len(ports), len(isns))
		}
	}
}

func assertSYN(t *testing.T, packet gopacket.Packet, to string) (netip.Addr, *layers.TCP) {
	t.Helper()
	if failure := packet.ErrorLayer(); failure != nil {
		t.Fatal(failure.Error())
	}
	tcp := packet.TransportLayer().(*layers.TCP)
	flow := packet.NetworkLayer().NetworkFlow()
	target, _ := netip.AddrFromSlice(flow.Dst().Raw())
	if got := netip.AddrPortFrom(target, uint16(tcp.DstPort)); got != netip.MustParseAddrPort(to) {
		t.Fatalf("to %s, want %s", got, to)
	}
	if !tcp.SYN || tcp.ACK || tcp.RST || tcp.FIN || len(tcp.Payload) != 0 || len(tcp.Options) != 1 {
		t.Fatalf("not a SYN: %+v", tcp)
	}
	source, _ := netip.AddrFromSlice(flow.Src().Raw())
	return source, tcp
}

func TestFloodSaysWhatIsWrong(t *testing.T) {
	client, _ := linked(t)
	good := raw.Flood{Interface: device, To: netip.MustParseAddrPort(vip), Clients: spoofed[vip], For: ms, Enter: client.enter}
	for _, c := range []struct {
		name string
		edit func(*raw.Flood)
		want string
	}{
		{"interface", func(f *raw.Flood) { f.Interface = "eth9" }, "eth9"},
		{"family", func(f *raw.Flood) { f.Clients = spoofed[vip4] }, "not of the family"},
		{"no clients", func(f *raw.Flood) { f.Clients = netip.Prefix{} }, "not of the family"},
		{"no end", func(f *raw.Flood) { f.For = 0 }, "never end"},
		{"next hop", func(f *raw.Flood) { f.NextHop = net.HardwareAddr{1} }, "not two Ethernet addresses"},
		{"no listener", func(f *raw.Flood) { f.To = netip.MustParseAddrPort("[2001:db8:1::77]:1") }, "does not answer"},
		{"namespace", func(f *raw.Flood) { f.Enter = func() error { return errors.New("no such namespace") } }, "no such namespace"},
	} {
		f := good
		c.edit(&f)
		if sent, err := f.Run(t.Context()); err == nil || !strings.Contains(err.Error(), c.want) || sent.Frames != 0 {
			t.Errorf("%s: got %+v, %v, want an error with %q", c.name, sent, err, c.want)
		}
	}
}

// numbered makes frames of an unused protocol, all in one buffer.
func numbered(header []byte) func(int) []byte {
	frame := make([]byte, 60)
	copy(frame, header)
	binary.BigEndian.PutUint16(frame[12:], localProtocol)
	return func(i int) []byte {
		binary.BigEndian.PutUint32(frame[14:], uint32(i))
		return frame
	}
}

const localProtocol = 0x88b5 // IEEE 802: local experiments

// Forge sends each frame once, in order, as it was made.
func TestForgeSendsEachFrameOnce(t *testing.T) {
	const n = 1000 // what the tap can hold
	client, server := linked(t)
	header, err := raw.Ethernet(client.enter, device, netip.MustParseAddr("2001:db8:f::1"))
	if err != nil {
		t.Fatal(err)
	}
	tap := server.tap()
	defer unix.Close(tap)
	sent, err := raw.Forge{Interface: device, Frame: numbered(header), Frames: n, Rate: 200_000, Enter: client.enter}.Run(t.Context())
	if err != nil || sent.Frames != n {
		t.Fatalf("sent %+v, %v, want %d frames", sent, err, n)
	}
	want := numbered(header)
	for i := range n {
		frame := make([]byte, 100)
		got, err := unix.Read(tap, frame)
		if err != nil || string(frame[:got]) != string(want(i)) {
			t.Fatalf("frame %d: got %x, %v", i, frame[:max(0, got)], err)
		}
	}
	if got, err := unix.Read(tap, make([]byte, 100)); err == nil {
		t.Errorf("a frame of %d bytes came after the last", got)
	}
}

// tap reads the frames of numbered as they come, and does not wait for them.
func (s *space) tap() (fd int) {
	s.t.Helper()
	s.do(func() (err error) {
		protocol := uint16(localProtocol&0xff<<8 | localProtocol>>8)
		fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, int(protocol))
		if err == nil {
			err = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 8<<20)
		}
		return err
	})
	return fd
}

// At full speed, too, what is said to be sent has arrived: straight through, and
// by way of the short queue that a veth end has with GRO or XDP.
func TestForgeCountsWhatArrives(t *testing.T) {
	const n = 200_000
	for _, queue := range []bool{false, true} {
		t.Run(fmt.Sprint("queue=", queue), func(t *testing.T) {
			client, server := linked(t)
			if queue {
				server.queue()
			}
			header, err := raw.Ethernet(client.enter, device, netip.MustParseAddr("203.0.113.1"))
			if err != nil {
				t.Fatal(err)
			}
			before := server.received()
			sent, err := raw.Forge{Interface: device, Frame: numbered(header), Frames: n, Enter: client.enter}.Run(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			waitFor(t, func() bool { return server.received()-before >= uint64(sent.Frames) })
			// The kernels' own chatter, such as router solicitations, is a few frames.
			if got := int(server.received() - before); got < sent.Frames || got > sent.Frames+20 {
				t.Errorf("%d frames arrived of %d", got, sent.Frames)
			}
			t.Logf("%d of %d frames at %.0f/s", sent.Frames, n, sent.Rate())
		})
	}
}

// What the interface refuses and what it swallows has not been sent.
func TestForgeDoesNotCountWhatIsDropped(t *testing.T) {
	for name, hinder := range map[string]func(netlink.Link) error{
		"the other end is down":    netlink.LinkSetDown,
		"the other end takes less": func(l netlink.Link) error { return netlink.LinkSetMTU(l, 1280) },
	} {
		t.Run(name, func(t *testing.T) {
			client, server := linked(t)
			header, err := raw.Ethernet(client.enter, device, netip.MustParseAddr("203.0.113.1"))
			if err != nil {
				t.Fatal(err)
			}
			server.do(func() error {
				link, err := netlink.LinkByName(device)
				if err != nil {
					return err
				}
				return hinder(link)
			})
			long := append(numbered(header)(0), make([]byte, 1400)...)
			frame := func(int) []byte { return long }
			sent, err := raw.Forge{Interface: device, Frame: frame, For: 50 * ms, Enter: client.enter}.Run(t.Context())
			if err != nil || sent.Frames != 0 {
				t.Errorf("got %+v, %v, want no frame sent", sent, err)
			}
		})
	}
}

// queue turns GRO on (ethtool -K eth0 gro on).
func (s *space) queue() {
	s.t.Helper()
	s.do(func() error {
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		value := struct{ command, data uint32 }{unix.ETHTOOL_SGRO, 1} // struct ethtool_value
		request := struct {                                           // struct ifreq
			name  [unix.IFNAMSIZ]byte
			value unsafe.Pointer
			_     [16]byte
		}{value: unsafe.Pointer(&value)}
		copy(request.name[:], device)
		if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.SIOCETHTOOL, uintptr(unsafe.Pointer(&request))); errno != 0 {
			return errno
		}
		return nil
	})
}

func TestForgeEndsWithItsContextAndItsInterface(t *testing.T) {
	client, _ := linked(t)
	header, err := raw.Ethernet(client.enter, device, netip.MustParseAddr("203.0.113.1"))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	after := func(end func()) raw.Forge {
		frame := numbered(header)
		return raw.Forge{Interface: device, Rate: 1000, For: time.Hour, Enter: client.enter, Frame: func(i int) []byte {
			if i == 10 {
				end()
			}
			return frame(i)
		}}
	}
	if sent, err := after(cancel).Run(ctx); !errors.Is(err, context.Canceled) || sent.Frames == 0 {
		t.Errorf("got %+v, %v, want some frames and the context's error", sent, err)
	}
	down := make(chan struct{})
	set := func() {
		defer close(down)
		client.do(func() error {
			link, err := netlink.LinkByName(device)
			if err != nil {
				return err
			}
			return netlink.LinkSetDown(link)
		})
	}
	if sent, err := after(func() { go set() }).Run(t.Context()); !errors.Is(err, unix.ENETDOWN) || sent.Frames == 0 {
		t.Errorf("got %+v, %v, want some frames and that the network is down", sent, err)
	}
	<-down
}

// BenchmarkFlood measures this machine's capacity: SYNs a second, the work of the
// kernel at the other end included.
func BenchmarkFlood(b *testing.B) {
	for _, rate := range []float64{50_000, 0} {
		b.Run(fmt.Sprint("rate=", rate), func(b *testing.B) {
			client, _ := linked(b)
			for b.Loop() {
				flood := raw.Flood{Interface: device, To: netip.MustParseAddrPort("[2001:db8:9::1]:80"), Clients: spoofed[vip],
					Rate: rate, For: time.Second, Enter: client.enter}
				sent, err := flood.Run(b.Context())
				if err != nil {
					b.Fatal(err)
				}
				b.ReportMetric(sent.Rate(), "frames/s")
			}
		})
	}
}
