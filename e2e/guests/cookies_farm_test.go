package guests

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sync/errgroup"

	"proffer/api"
	"proffer/e2e/kit"
	"proffer/lab/farmrun"
	"proffer/lab/testbed"
	"proffer/proof/guest"
)

// cookieFarm has kernels of their own for servers, which answer every SYN by a
// cookie.
type cookieFarm struct {
	bed    *testbed.Bed
	farm   *farmrun.Farm
	lb     *testbed.Process
	guests []*guest.Guest // in the order of bed.Servers
}

// upCookies builds a farm and puts a guest in the place of every server.
func upCookies(t *testing.T) *cookieFarm {
	t.Helper()
	bed := kit.Up(t, testbed.Config{Servers: 2})
	f := &cookieFarm{bed: bed, farm: kit.Start(t, bed, kit.Settings(t, "hunt:static:0"))}
	f.lb = f.farm.Daemon(bed.LBs[0])
	program := built(t, "proffer")
	f.guests = make([]*guest.Guest, len(bed.Servers))
	t.Cleanup(f.close(t))
	var group errgroup.Group
	for i, n := range bed.Servers {
		if err := f.farm.Daemon(n).Stop(); err != nil {
			t.Fatal(err)
		}
		files := f.files(t, n)
		files["/bin/proffer"] = program
		group.Go(func() (err error) {
			f.guests[i], err = guest.Boot(t.Context(), guest.Config{Name: bed.Run + "-" + n.Name, Place: n, Files: files})
			return err
		})
	}
	if err := group.Wait(); err != nil {
		t.Fatal(err)
	}
	f.all(t, "serve")
	return f
}

// close ends the guests, and shows why if the test has failed.
func (f *cookieFarm) close(t *testing.T) func() {
	return func() {
		for i, g := range f.guests {
			if g == nil {
				continue
			}
			if t.Failed() {
				ctx, cancel := context.WithTimeout(context.Background(), kit.Patience)
				log, err := g.Run(ctx, "cat", agentLog)
				cancel()
				t.Logf("the agent on %s (error %v):\n%s", f.bed.Servers[i].Name, err, log)
			}
			if err := g.Close(); err != nil {
				t.Error(err)
			}
		}
	}
}

const agentLog = "/agent.log"

// files make a guest the server that n was: with its addresses, its agent's
// configuration and keys, and a web server that sends its name. The router is the host
// before each node on its link; once it has answered it knows the guest's MAC.
func (f *cookieFarm) files(t *testing.T, n *testbed.Node) map[string][]byte {
	t.Helper()
	files := map[string][]byte{
		"/www/name": []byte(n.Name),
		"/bin/serve": fmt.Appendf(nil, `#!/bin/sh -e
for each in default eth0 lo; do echo 0 >/proc/sys/net/ipv6/conf/$each/accept_dad; done
echo 2 >/proc/sys/net/ipv4/tcp_syncookies
ip link set lo up
ip link set eth0 up
ip addr add %s/128 dev lo
ip addr add %s/128 dev lo
ip addr add %s/64 dev eth0
ip route add default via %[4]s dev eth0
ping -c 1 -W 20 %[4]s
httpd -h /www -p '[%[2]s]:%[5]d'
`, n.Loopback(), f.bed.VIP, n.Addr, n.Addr.Prev(), testbed.Port),
		"/bin/agent-status": fmt.Appendf(nil, "#!/bin/sh\nexec proffer status --json --control %s\n", kit.Control(f.bed, n)),
		"/bin/accept": fmt.Appendf(nil, `#!/bin/sh
killall proffer
while pidof proffer; do sleep 0.1; done
sed "s/static:[0-9]*/$1/" %s >/now.yaml
proffer agent --config /now.yaml --detach >>%s 2>&1 &
until agent-status; do
	sleep 0.1
	pidof proffer || exit 1
done
`, kit.Configuration(f.bed, n), agentLog),
	}
	for _, path := range []string{kit.Configuration(f.bed, n), filepath.Join(f.bed.Dir, n.Name+".keys")} {
		content, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		files[path] = content
	}
	return files
}

// all runs a program in every guest at once, which succeeds, and returns what
// each one printed.
func (f *cookieFarm) all(t *testing.T, args ...string) []string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), kit.Patience)
	defer cancel()
	out := make([]string, len(f.guests))
	var group errgroup.Group
	for i, g := range f.guests {
		group.Go(func() (err error) {
			if out[i], err = g.Run(ctx, args...); err != nil {
				err = fmt.Errorf("%w\nits console:\n%s", err, g.Console())
			}
			return err
		})
	}
	if err := group.Wait(); err != nil {
		t.Fatal(err)
	}
	return out
}

// accept starts every agent again with this acceptance.
func (f *cookieFarm) accept(t *testing.T, acceptance string) {
	t.Helper()
	f.all(t, "accept", acceptance)
}

// restartLB makes the LB forget every flow: a daemon with --detach leaves
// nothing behind.
func (f *cookieFarm) restartLB(t *testing.T) {
	t.Helper()
	if err := f.lb.Stop(); err != nil {
		t.Fatal(err)
	}
	f.lb = kit.Restart(t, f.bed, f.bed.LBs[0], "lb", "--detach")
}

// candidateKey changes the key that decides every flow's candidates, from the
// LB's next start on, and returns that before.
func (f *cookieFarm) candidateKey(t *testing.T, key string) (before string) {
	t.Helper()
	path := kit.Configuration(f.bed, f.bed.LBs[0])
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	line := regexp.MustCompile(`(?m)^candidate_key: "?([0-9a-f]{32})"?$`)
	found := line.FindSubmatch(text)
	if found == nil {
		t.Fatalf("no candidate key in\n%s", text)
	}
	text = line.ReplaceAll(text, fmt.Appendf(nil, "candidate_key: %q", key))
	if err := os.WriteFile(path, text, 0o644); err != nil {
		t.Fatal(err)
	}
	return string(found[1])
}

// counters adds up what the agents count.
func (f *cookieFarm) counters(t *testing.T) map[string]uint64 {
	t.Helper()
	sum := map[string]uint64{}
	for _, text := range f.all(t, "agent-status") {
		var s api.Status
		if err := json.Unmarshal([]byte(text), &s); err != nil {
			t.Fatal(err)
		}
		for name, value := range s.Counters {
			sum[name] += value
		}
	}
	return sum
}

// cookies are what kernels count of them: sent in SYN-ACKs, received in ACKs,
// and ACKs that carried none of theirs.
type cookies struct{ sent, received, failed int }

func (c cookies) minus(d cookies) cookies {
	return cookies{c.sent - d.sent, c.received - d.received, c.failed - d.failed}
}

// cookies adds up those of all guests.
func (f *cookieFarm) cookies(t *testing.T) (sum cookies) {
	t.Helper()
	for _, text := range f.all(t, "grep", "^TcpExt:", "/proc/net/netstat") {
		// Two lines: names, then values in their order.
		var names, values []string
		for line := range strings.Lines(text) {
			names, values = values, strings.Fields(line)
		}
		read := func(name string) int {
			at := slices.Index(names, name)
			if at < 0 || at >= len(values) {
				t.Fatalf("the guest's kernel does not count %s", name)
			}
			n, err := strconv.Atoi(values[at])
			if err != nil {
				t.Fatal(err)
			}
			return n
		}
		sum.sent += read("SyncookiesSent")
		sum.received += read("SyncookiesRecv")
		sum.failed += read("SyncookiesFailed")
	}
	return sum
}
