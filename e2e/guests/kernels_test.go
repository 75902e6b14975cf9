package guests

import (
	"context"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"proffer/e2e/kit"
	"proffer/lab/testbed"
	"proffer/proof/guest"
)

// TestOldestKernel: Linux 6.1, the oldest kernel that is promised, takes the LB's
// programs, and with the bench around them the agent's, too; TestCookies has it run those. There
// control groups are those of version 2, whatever this machine has: their limit refuses a table.
// And there is no tcx: a daemon's end leaves neither its filter nor its qdisc.
func TestOldestKernel(t *testing.T) {
	t.Parallel()
	bed := kit.Up(t, testbed.Config{Servers: 1})
	farm := kit.Start(t, bed, kit.Settings(t, "hunt:static:4"))
	lb := bed.LBs[0]
	kit.Forget(t, farm.Daemon(lb))
	files := map[string][]byte{
		"/bin/proffer":     built(t, "proffer"),
		"/bin/proffer-lab": built(t, "proffer-lab"),
		"/bin/balance": fmt.Appendf(nil, `#!/bin/sh
uname -r
ip link set lo up
ip link set eth0 up
: >/lb.log
proffer lb --config %s >>/lb.log 2>&1 &
until grep -q ready /lb.log; do
	sleep 0.1
	pidof proffer >/dev/null || break
done
cat /lb.log
`, kit.Configuration(bed, lb)),
	}
	for _, path := range []string{kit.Configuration(bed, lb), strings.TrimSuffix(kit.Configuration(bed, lb), "yaml") + "keys"} {
		var err error
		if files[path], err = os.ReadFile(path); err != nil {
			t.Fatal(err)
		}
	}
	files["/etc/much.yaml"] = regexp.MustCompile(`entries: \d+`).ReplaceAll(files[kit.Configuration(bed, lb)], []byte("entries: 16777216"))
	files["/etc/many.yaml"] = []byte(`node: {name: s1, locator: "5f00:0:2:1::/64", interface: eth0, domain: ["5f00::/16"]}
signal_keys: none
flow_table: {entries: 1048576}
services: [{vip: "2001:db8:f::1", port: 80, acceptance: always}]
`)
	files["/bin/cramped"] = []byte(`#!/bin/sh
mount -t cgroup2 none /sys/fs/cgroup
echo +memory >/sys/fs/cgroup/cgroup.subtree_control
mkdir -p /sys/fs/cgroup/small/one
echo 128M >/sys/fs/cgroup/small/memory.max
echo $$ >/sys/fs/cgroup/small/one/cgroup.procs
proffer lb --config /etc/much.yaml 2>&1
proffer agent --config /etc/many.yaml 2>&1
`)
	files["/bin/leave"] = fmt.Appendf(nil, `#!/bin/sh
run() {
	: >/lb.log
	proffer lb --config %s "$@" >>/lb.log 2>&1 &
	until grep -q ready /lb.log; do
		sleep 0.1
		pidof proffer >/dev/null || cat /lb.log
	done
	tc qdisc show dev eth0
}
left() { echo "left by $1: $(tc qdisc show dev eth0 | grep clsact)."; }
ip link set eth0 up
run --detach
kill $!
wait $!
left "a daemon without pins"
mount -t bpf bpf /sys/fs/bpf
run --detach
kill $!
wait $!
left "a daemon with pins"
run
kill -9 $!
wait $!
proffer detach
left "proffer detach"
`, kit.Configuration(bed, lb))
	files["/bin/measure"] = []byte(`#!/bin/sh
proffer-lab bench --runs 1 --flows 1e3 --rows '^(floor//line|lb/hunt/steer|agent/hunt/not-ours)/' 2>&1
`)
	g, err := guest.Boot(t.Context(), guest.Config{Name: bed.Run + "-lb", Place: lb, Files: files})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := g.Close(); err != nil {
			t.Error(err)
		}
	})
	ctx, cancel := context.WithTimeout(t.Context(), 5*kit.Patience) // the processor is emulated
	defer cancel()
	out, err := g.Run(ctx, "cramped")
	const want = "a table of 16777216 flows takes 340 MiB and memory.max of cgroup /small leaves "
	if err == nil || !strings.Contains(out, want) {
		t.Errorf("the LB in a small control group: %v\n%s", err, out)
	}
	if want := "a table of 1048576 flows takes 147 MiB and memory.max of cgroup /small leaves "; !strings.Contains(out, want) {
		t.Errorf("the agent in a small control group:\n%s", out)
	}
	out, err = g.Run(ctx, "measure")
	measured := regexp.MustCompile(`(?m)^lb +hunt +steer .*\n(agent +hunt +not-ours .*)$`).MatchString(out)
	if !measured || err != nil && !strings.Contains(out, "the CPU was too busy to measure") {
		t.Errorf("the bench on an old kernel: %v\n%s", err, out)
	}
	out, err = g.Run(ctx, "leave")
	if err != nil || strings.Count(out, "qdisc clsact") != 3 || strings.Count(out, ": .\n") != 3 {
		t.Errorf("the end of daemons without tcx: %v\n%s", err, out)
	}
	out, err = g.Run(ctx, "balance")
	if err != nil {
		t.Fatalf("%v\n%s\n%s", err, out, g.Console())
	}
	if !strings.HasPrefix(out, "6.1.") || !strings.Contains(out, "msg=ready role=lb") {
		t.Errorf("the LB on an old kernel:\n%s", out)
	}
}

// built compiles one of our commands as a guest can run it.
func built(t *testing.T, command string) []byte {
	t.Helper()
	program, err := guest.Build(t.Context(), "proffer/cmd/"+command)
	if err != nil {
		t.Fatal(err)
	}
	return program
}
