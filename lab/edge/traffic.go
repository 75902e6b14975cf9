package edge

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"proffer/lab/stats"
	"proffer/lab/testbed"
)

// demoTraffic is the demo's: curl and iperf3 from the client by NAT, questions like DNS's in both
// directions, and curl from the world.
type demoTraffic struct {
	bed     *testbed.EdgeBed
	servers []interface{ Close() error }

	mu                   sync.Mutex
	outward, inward, dns Asked
	up, down             float64 // Mbit/s
	rtts                 []float64
}

// Asked counts requests and their answers.
type Asked struct {
	Asked    int `json:"asked"`
	Answered int `json:"answered"`
}

const (
	fetch    = 50_000 // bytes of an answer to curl
	bitrate  = "20M"  // of iperf3, either way
	curls    = 250 * time.Millisecond
	queries  = 10 * time.Millisecond
	waits    = time.Second // for an answer
	dns      = 53
	iperf    = "5201"
	httpPort = 80
)

// newDemoTraffic starts the servers in the world, and those of the client for the world.
func newDemoTraffic(bed *testbed.EdgeBed) (_ *demoTraffic, err error) {
	t := &demoTraffic{bed: bed}
	defer func() {
		if err != nil {
			err = errors.Join(err, t.close())
		}
	}()
	for _, end := range []struct {
		n    *testbed.Node
		addr netip.Addr
	}{{bed.World, testbed.EdgeWorld}, {bed.Client, testbed.EdgeClient[0]}} {
		l, err := end.n.Listen("tcp", netip.AddrPortFrom(end.addr, httpPort).String())
		if err != nil {
			return t, fmt.Errorf("listen in %s: %w", end.n.Name, err)
		}
		server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.Write(make([]byte, fetch)) })}
		t.servers = append(t.servers, server)
		go server.Serve(l) // ends with close
		if err := t.answerDNS(end.n, end.addr); err != nil {
			return t, fmt.Errorf("answer questions in %s: %w", end.n.Name, err)
		}
	}
	_, err = bed.World.Start(context.Background(), "iperf3", "--server", "--bind", testbed.EdgeWorld.String(), "--port", iperf)
	return t, err
}

// answerDNS answers each datagram as a DNS server its question (RFC 1035 §4.1.1).
func (t *demoTraffic) answerDNS(n *testbed.Node, addr netip.Addr) error {
	var conn *net.UDPConn
	err := n.Do(func() (err error) {
		conn, err = net.ListenUDP("udp4", net.UDPAddrFromAddrPort(netip.AddrPortFrom(addr, dns)))
		return err
	})
	if err != nil {
		return err
	}
	t.servers = append(t.servers, conn)
	go func() {
		b := make([]byte, 512)
		for {
			n, from, err := conn.ReadFromUDPAddrPort(b)
			if err != nil {
				return
			}
			if n > 2 {
				b[2] |= 0x80 // QR: an answer
				conn.WriteToUDPAddrPort(b[:n], from)
			}
		}
	}()
	return nil
}

func (t *demoTraffic) close() error {
	var errs []error
	for _, s := range t.servers {
		errs = append(errs, s.Close())
	}
	return errors.Join(errs...)
}

// run runs all of it until ctx ends, after so long.
func (t *demoTraffic) run(ctx context.Context, length time.Duration) error {
	client, natted := testbed.EdgeClient[0], testbed.EdgeClient[1]
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return t.iperf(ctx, natted, length) })
	group.Go(func() error { return t.curls(ctx, t.bed.Client, natted, testbed.EdgeWorld, &t.outward) })
	group.Go(func() error { return t.curls(ctx, t.bed.World, testbed.EdgeWorld, client, &t.inward) })
	group.Go(func() error { return t.ask(ctx, t.bed.Client, natted, testbed.EdgeWorld) })
	group.Go(func() error { return t.ask(ctx, t.bed.World, testbed.EdgeWorld, client) })
	group.Go(func() error { return t.denied(ctx, natted) })
	return group.Wait()
}

// every calls f once a period until ctx ends.
func every(ctx context.Context, period time.Duration, f func()) {
	ticks := time.NewTicker(period)
	defer ticks.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticks.C:
			f()
		}
	}
}

// curls fetches with curl, in turn.
func (t *demoTraffic) curls(ctx context.Context, n *testbed.Node, from, to netip.Addr, count *Asked) error {
	var failed error
	every(ctx, curls, func() {
		p, err := n.Start(ctx, "curl", "--silent", "--show-error", "--fail", "--max-time", "5", "--interface", from.String(), "--output", "/dev/null", "http://"+to.String()+"/")
		if err != nil {
			failed = err
			return
		}
		err = p.Wait()
		if ctx.Err() != nil {
			return // cut off
		}
		t.mu.Lock()
		defer t.mu.Unlock()
		count.Asked++
		if err == nil {
			count.Answered++
		}
	})
	if ctx.Err() != nil {
		return nil
	}
	return failed
}

// ask sends questions, each from a port of its own, and waits for their answers.
func (t *demoTraffic) ask(ctx context.Context, n *testbed.Node, from, to netip.Addr) error {
	var group sync.WaitGroup
	defer group.Wait()
	id := uint16(0)
	every(ctx, queries, func() {
		id++
		question := binary.BigEndian.AppendUint16(nil, id)
		question = append(question, "\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\x07example\x03org\x00\x00\x01\x00\x01"...)
		group.Go(func() {
			took, err := askOnce(n, from, netip.AddrPortFrom(to, dns), question)
			t.mu.Lock()
			defer t.mu.Unlock()
			t.dns.Asked++
			if err == nil {
				t.dns.Answered++
				t.rtts = append(t.rtts, took.Seconds())
			}
		})
	})
	return nil
}

// askOnce returns how long the answer took.
func askOnce(n *testbed.Node, from netip.Addr, to netip.AddrPort, question []byte) (took time.Duration, err error) {
	var conn *net.UDPConn
	err = n.Do(func() (err error) {
		conn, err = net.DialUDP("udp4", net.UDPAddrFromAddrPort(netip.AddrPortFrom(from, 0)), net.UDPAddrFromAddrPort(to))
		return err
	})
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	begun := time.Now()
	if err := conn.SetDeadline(begun.Add(waits)); err != nil {
		return 0, err
	}
	if _, err := conn.Write(question); err != nil {
		return 0, err
	}
	answer := make([]byte, 512)
	k, err := conn.Read(answer)
	if err == nil && (k != len(question) || [2]byte(answer) != [2]byte(question)) {
		err = errors.New("the answer is to another question")
	}
	return time.Since(begun), err
}

// denied tries a port that the firewall denies, all the time.
func (t *demoTraffic) denied(ctx context.Context, from netip.Addr) error {
	every(ctx, waits, func() {
		short, end := context.WithTimeout(ctx, waits/2)
		defer end()
		_ = t.bed.Client.Do(func() error {
			d := net.Dialer{LocalAddr: net.TCPAddrFromAddrPort(netip.AddrPortFrom(from, 0))}
			conn, err := d.DialContext(short, "tcp4", netip.AddrPortFrom(testbed.EdgeWorld, denied).String())
			if err == nil {
				conn.Close() // the counters of the nodes show the denial
			}
			return err
		})
	})
	return nil
}

// iperf runs iperf3 outward for the first half, then inward.
func (t *demoTraffic) iperf(ctx context.Context, from netip.Addr, length time.Duration) error {
	const ends = 1500 * time.Millisecond // of iperf3, beside its transfer
	seconds := max(1, int((length/2 - ends).Seconds()))
	for _, way := range []struct {
		flag []string
		to   *float64
	}{{nil, &t.up}, {[]string{"--reverse"}, &t.down}} {
		arguments := append([]string{"--client", testbed.EdgeWorld.String(), "--bind", from.String(), "--port", iperf,
			"--time", fmt.Sprint(seconds), "--bitrate", bitrate, "--length", "2500", "--json"}, way.flag...)
		rate, err := t.iperfOnce(ctx, arguments)
		for errors.Is(err, errNoIperf) && ctx.Err() == nil {
			time.Sleep(20 * time.Millisecond)
			rate, err = t.iperfOnce(ctx, arguments)
		}
		if ctx.Err() != nil {
			return nil // cut off: its part of the result stays 0
		}
		if err != nil {
			return err
		}
		t.mu.Lock()
		*way.to = rate / 1e6
		t.mu.Unlock()
	}
	return nil
}

// errNoIperf: the server does not listen, yet.
var errNoIperf = errors.New("iperf3's server refuses the connection")

// iperfOnce returns the rate of a run, in bits a second.
func (t *demoTraffic) iperfOnce(ctx context.Context, arguments []string) (rate float64, err error) {
	cmd := exec.CommandContext(ctx, "iperf3", arguments...)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	p, err := t.bed.Client.StartCommand(cmd)
	if err != nil {
		return 0, err
	}
	ended := p.Wait()
	var report struct {
		Error string `json:"error"` // with an exit code of 0
		End   struct {
			Received struct {
				Rate float64 `json:"bits_per_second"`
			} `json:"sum_received"`
		} `json:"end"`
	}
	if err := json.Unmarshal(out.Bytes(), &report); err != nil {
		return 0, fmt.Errorf("iperf3 (%w) printed %q", errors.Join(ended, err), out.String())
	}
	switch {
	case strings.Contains(report.Error, "refused"):
		return 0, errNoIperf
	case report.Error != "" || ended != nil:
		return 0, fmt.Errorf("iperf3: %s (%w)", report.Error, errors.Join(ended, errors.New("no result")))
	}
	return report.End.Received.Rate, nil
}

// p50 is the median time of an answer, in s.
func (t *demoTraffic) p50() float64 {
	if len(t.rtts) == 0 {
		return 0
	}
	slices.Sort(t.rtts)
	return stats.Quantile(t.rtts, 0.5)
}
