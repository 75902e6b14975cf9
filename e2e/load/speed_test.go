package load

import (
	"bufio"
	"fmt"
	"math"
	"net"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"proffer/e2e/kit"
	"proffer/lab/testbed"
	"proffer/topo"
)

// timedServer serves each connection with a thread. A request takes 25 ms; its answer is how many
// seconds it took by the server's own clock.
const timedServer = `
import socket, sys, threading, time
l = socket.socket(socket.AF_INET6); l.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
l.bind((sys.argv[1], int(sys.argv[2]))); l.listen(64)
def serve(c):
    while c.recv(4096):
        began = time.monotonic()
        time.sleep(0.025)
        c.send(b"%.9f\n" % (time.monotonic() - began))
while True:
    threading.Thread(target=serve, args=(l.accept()[0],), daemon=True).start()
`

// TestServiceTime: without configuration the agent knows the cores of the processes that serve, here
// one of two CPUs, the requests that they answer, and how long these take, to the error that it
// states, though several are in progress at once.
func TestServiceTime(t *testing.T) {
	const clients, requests = 4, 100
	bed := kit.Up(t, testbed.Config{Servers: 1})
	server := bed.Servers[0]
	p, err := server.StartCommand(exec.Command("taskset", "-c", "0", kit.Program(t, "python3"), "-c", timedServer, bed.VIP.String(), fmt.Sprint(testbed.Port)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Stop() })
	kit.Eventually(t, "the server listens", func() bool { return len(kit.TCP6(t, bed, server, "0A")) == 1 })
	s := kit.Settings(t, "hunt:static:4")
	s.Measure = topo.Work
	farm := kit.Start(t, bed, s)
	if l := kit.LoadAt(t, farm, server); l.ServiceTime != nil || l.Answers != 0 {
		t.Errorf("before any request: %+v", l)
	}
	times := make(chan float64)
	var running sync.WaitGroup
	for range clients {
		c := kit.Dial(t, bed)
		running.Go(func() {
			if err := timed(c, requests, times); err != nil {
				t.Error(err)
			}
		})
	}
	go func() {
		running.Wait()
		close(times)
	}()
	sum, n := 0.0, 0
	for took := range times {
		sum += took
		n++
	}
	mean := sum / float64(n)
	kit.Eventually(t, "one core", func() bool { return kit.LoadAt(t, farm, server).Cores == 1 })
	kit.Eventually(t, "every core idle", func() bool {
		l := kit.LoadAt(t, farm, server)
		return l.Busy != nil && *l.Busy == 0 && *l.Idle == 1
	})
	l := kit.LoadAt(t, farm, server)
	if l.Answers != clients*requests || l.ServiceTime == nil {
		t.Fatalf("%d requests: %+v", clients*requests, l)
	}
	t.Logf("%d requests took %.1f ms by the server's clock; the agent: %.1f ms ± %.1f %%", n, 1e3*mean, 1e3*l.ServiceTime.Mean, 100*l.ServiceTime.Error)
	if off := math.Abs(l.ServiceTime.Mean/mean - 1); off > 3*l.ServiceTime.Error+0.1 || l.ServiceTime.Error > 0.25 {
		t.Errorf("%.1f %% off", 100*off)
	}
}

// timed makes requests on a connection, one after another.
func timed(c net.Conn, requests int, times chan<- float64) error {
	answers := bufio.NewReader(c)
	for range requests {
		c.SetDeadline(time.Now().Add(kit.Patience))
		if _, err := c.Write([]byte("request")); err != nil {
			return err
		}
		line, err := answers.ReadString('\n')
		if err != nil {
			return err
		}
		took, err := strconv.ParseFloat(strings.TrimSpace(line), 64)
		if err != nil {
			return err
		}
		times <- took
	}
	return nil
}
