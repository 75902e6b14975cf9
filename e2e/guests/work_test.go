package guests

import (
	"context"
	"strings"
	"testing"

	"proffer/e2e/kit"
	"proffer/lab/testbed"
	"proffer/proof/guest"
)

// TestWorkOnOldestKernel: Linux 6.1 takes the programs that count work, and counts the requests
// of a service that forks: three that sleep, and none once they are answered; the service has the
// quota of its cgroup.
func TestWorkOnOldestKernel(t *testing.T) {
	t.Parallel()
	bed := kit.Up(t, testbed.Config{Servers: 1})
	files := map[string][]byte{
		"/bin/proffer": built(t, "proffer"),
		"/etc/agent.yaml": []byte(`node: {name: s1, locator: "5f00:0:2:1::/64", interface: eth0, domain: ["5f00::/16"]}
signal_keys: none
services: [{vip: "2001:db8:f::1", port: 80, acceptance: always, load: work}]
`),
		"/bin/slow": []byte("#!/bin/sh\nread line\nuntil [ -e /answer ]; do sleep 0.1; done\necho done\n"),
		"/bin/shows": []byte(`#!/bin/sh
for i in $(seq 100); do
	proffer status --control /run/proffer/agent.sock >/status
	grep -q "$1" /status && grep -q "$2" /status && break
	sleep 0.1
done
cat /status
`),
		"/bin/count": []byte(`#!/bin/sh
uname -r
ip link set lo up
ip link set eth0 up
ip addr add 2001:db8:f::1/128 dev lo
mkdir -p /sys/fs/cgroup
mount -t cgroup2 none /sys/fs/cgroup
echo +cpu >/sys/fs/cgroup/cgroup.subtree_control
mkdir /sys/fs/cgroup/web
echo 50000 100000 >/sys/fs/cgroup/web/cpu.max
sh -c 'echo $$ >/sys/fs/cgroup/web/cgroup.procs; exec nc -ll -p 80 -e /bin/slow >/dev/null 2>&1' &
proffer agent --config /etc/agent.yaml >/log 2>&1 &
until grep -q ready /log || ! pidof proffer >/dev/null; do sleep 0.1; done
cat /log
shows "0.5 cores, busy 0, " "run 0, blocked 0" >/dev/null
for i in 1 2 3; do echo GET | nc 2001:db8:f::1 80 >/dev/null 2>&1 & done
shows "run 0, blocked 3, out 0" "0.5 cores, busy 3, idle 0, "
: >/answer
shows "run 0, blocked 0, out 0" "0.5 cores, busy 0, idle 0.5, "
killall proffer nc
`),
	}
	g, err := guest.Boot(t.Context(), guest.Config{Name: bed.Run + "-agent", Place: bed.Servers[0], Files: files})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := g.Close(); err != nil {
			t.Error(err)
		}
	})
	ctx, cancel := context.WithTimeout(t.Context(), 4*kit.Patience)
	defer cancel()
	out, err := g.Run(ctx, "count")
	if err != nil || !strings.HasPrefix(out, "6.1.") || strings.Contains(out, "cannot be counted") {
		t.Fatalf("%v\n%s", err, out)
	}
	if strings.Count(out, "run 0, blocked 3, out 0") != 1 || strings.Count(out, "run 0, blocked 0, out 0") != 1 {
		t.Errorf("three requests, and none:\n%s", out)
	}
	if strings.Count(out, "0.5 cores, busy 3, idle 0, ") != 1 || strings.Count(out, "0.5 cores, busy 0, idle 0.5, ") != 1 {
		t.Errorf("half a core:\n%s", out)
	}
}
