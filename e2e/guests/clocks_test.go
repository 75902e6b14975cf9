package guests

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"proffer/api"
	"proffer/e2e/kit"
	"proffer/lab/testbed"
	"proffer/proof/guest"
)

// TestClockJumps: docs/failures.md, clock jumps: an LB on a machine of its own, whose date is set
// an hour forward and two hours back, keeps every flow, although its flows are idle after a
// minute, and takes new ones.
func TestClockJumps(t *testing.T) {
	t.Parallel()
	const flows = 40
	bed := kit.Up(t, testbed.Config{Servers: 2})
	s := kit.Settings(t, "hunt:static:4")
	farm := kit.Start(t, bed, s)
	lb := bed.LBs[0]
	kit.Echo(t, bed.Servers[0], bed.VIP)
	kit.Echo(t, bed.Servers[1], bed.VIP)
	kit.Forget(t, farm.Daemon(lb))
	g := guestLB(t, bed, lb)
	long := kit.Open(t, bed, 20000, flows)
	kit.Alive(t, "before any jump", long)
	before := statusIn(t, g, bed, lb)
	for i, hours := range []int{1, -2} {
		ctx, cancel := context.WithTimeout(t.Context(), kit.Patience)
		out, err := g.Run(ctx, "date", "-s", fmt.Sprintf("@%d", time.Now().Add(time.Duration(hours)*time.Hour).Unix()))
		cancel()
		if err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		time.Sleep(6 * time.Second) // a sweep of the whole table comes by in five
		kit.Alive(t, fmt.Sprintf("%d h later", hours), long)
		kit.Alive(t, "new ones", kit.Open(t, bed, 21000+1000*i, flows))
	}
	after := statusIn(t, g, bed, lb)
	if n := after.Counters["recover"] - before.Counters["recover"]; n > 0 {
		t.Errorf("%d packets of live flows met no entry", n)
	}
	if n := after.Counters["offer"] - before.Counters["offer"]; n < 2*flows {
		t.Errorf("only %d offers: the guest is not the LB", n)
	}
}

// guestLB puts a machine of its own in the LB's place, which balances as the LB did.
func guestLB(t *testing.T, bed *testbed.Bed, lb *testbed.Node) *guest.Guest {
	t.Helper()
	kit.Changed(t, bed, lb, "idle: 5m", "idle: 1m")
	files := map[string][]byte{
		"/bin/proffer": built(t, "proffer"),
		"/bin/balance": fmt.Appendf(nil, `#!/bin/sh -e
for each in default eth0 lo; do echo 0 >/proc/sys/net/ipv6/conf/$each/accept_dad; done
ip link set lo up
ip link set eth0 up
ip addr add %s/128 dev lo
ip addr add %s/64 dev eth0
ip route add default via %[3]s dev eth0
ping -c 1 -W 20 %[3]s
proffer lb --config %[4]s >/lb.log 2>&1 &
until grep -q ready /lb.log; do
	sleep 0.1
	pidof proffer >/dev/null || break
done
cat /lb.log
`, lb.Loopback(), lb.Addr, lb.Addr.Prev(), kit.Configuration(bed, lb)),
		"/bin/lb-status": fmt.Appendf(nil, "#!/bin/sh\nexec proffer status --json --control %s\n", kit.Control(bed, lb)),
	}
	for _, path := range []string{kit.Configuration(bed, lb), strings.TrimSuffix(kit.Configuration(bed, lb), "yaml") + "keys"} {
		content, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		files[path] = content
	}
	g, err := guest.Boot(t.Context(), guest.Config{Name: bed.Run + "-" + lb.Name, Place: lb, Files: files})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := g.Close(); err != nil {
			t.Error(err)
		}
	})
	ctx, cancel := context.WithTimeout(t.Context(), kit.Patience)
	defer cancel()
	if out, err := g.Run(ctx, "balance"); err != nil || !strings.Contains(out, "msg=ready role=lb") {
		t.Fatalf("%v\n%s\n%s", err, out, g.Console())
	}
	return g
}

func statusIn(t *testing.T, g *guest.Guest, bed *testbed.Bed, lb *testbed.Node) (s api.Status) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), kit.Patience)
	defer cancel()
	out, err := g.Run(ctx, "lb-status")
	if err == nil {
		err = json.Unmarshal([]byte(out), &s)
	}
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return s
}
