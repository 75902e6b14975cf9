package daemons

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"proffer/e2e/kit"
	"proffer/lab/testbed"
)

// TestPackageContents: the package has the program, a unit for each daemon that starts it there, a manual page for
// each verb with its help's words, completion that knows the verbs, and one file of the operator's; all belong to
// root; Debian's checker has no complaint.
func TestPackageContents(t *testing.T) {
	dir := t.TempDir()
	program := filepath.Join(dir, "proffer")
	build := exec.Command("go", "build", "-trimpath", "-ldflags=-s -w", "-o", program, "proffer/cmd/proffer") // as make deb does
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	kit.Debian(t, program, "0.1", dir)
	file := filepath.Join(dir, "proffer_0.1_amd64.deb")
	run := func(name string, args ...string) string {
		out, err := exec.Command(name, args...).CombinedOutput()
		if err != nil {
			t.Errorf("%s %v: %v\n%s", name, args, err, out)
		}
		return string(out)
	}
	for line := range strings.Lines(run("dpkg-deb", "-c", file)) {
		if f := strings.Fields(line); f[1] != "root/root" {
			t.Errorf("not root's: %s", line)
		}
	}
	run("dpkg-deb", "--raw-extract", file, filepath.Join(dir, "x"))
	read := func(path string) string {
		text, err := os.ReadFile(filepath.Join(dir, "x", path))
		kit.Must(t, err)
		return string(text)
	}
	if read("DEBIAN/conffiles") != "/etc/proffer/farm.yaml\n" || read("etc/proffer/farm.yaml") == "" {
		t.Error("the operator's file is not alone")
	}
	for _, role := range []string{"lb", "agent", "edge", "nf"} {
		if unit := read("usr/lib/systemd/system/proffer-" + role + ".service"); !strings.Contains(unit, "ExecStart=/usr/bin/proffer "+role+" ") || strings.Contains(unit, "/usr/local") {
			t.Errorf("%s", unit)
		}
	}
	for _, verb := range []string{"lb", "status", "keys new", "detach"} {
		page := run("zcat", filepath.Join(dir, "x/usr/share/man/man1/proffer-"+strings.ReplaceAll(verb, " ", "-")+".1.gz"))
		page = strings.NewReplacer(`\-`, "-", `\e`, `\`, `\&`, "").Replace(page)
		for line := range strings.Lines(run(kit.Proffer, append([]string{"help"}, strings.Fields(verb)...)...)) {
			if !strings.HasSuffix(line, ":\n") && !strings.Contains(page, line) {
				t.Errorf("the page of %s lacks %q", verb, line)
			}
		}
	}
	if out := run("bash", "-c", "PATH="+filepath.Join(dir, "x/usr/bin")+":$PATH; source "+
		filepath.Join(dir, "x/usr/share/bash-completion/completions/proffer")+"; type __start_proffer >/dev/null; proffer __complete l"); !strings.Contains(out, "lb\t") {
		t.Errorf("completion of l:\n%s", out)
	}
	run("lintian", "--fail-on", "error,warning", file)
}

// TestPackage: the package is installed, upgraded and removed where systemd runs, on an LB and a server. Their
// daemons run under all restrictions of their units, flows outlive the upgrade, a reload of a file with a
// mistake fails, and a removal leaves no program.
func TestPackage(t *testing.T) {
	before, err := os.ReadFile("/var/lib/dpkg/status")
	kit.Must(t, err)
	bed := kit.Up(t, testbed.Config{Servers: 2})
	kit.Echoes(t, bed, bed.Servers...)
	farm := kit.Start(t, bed, kit.Settings(t, "hunt:dynamic"))
	nodes := map[string]*testbed.Node{"lb": bed.LBs[0], "agent": bed.Servers[0]}
	in, packages := map[string]*kit.Container{}, t.TempDir()
	for _, version := range []string{"0.1", "0.2"} {
		kit.Debian(t, kit.Proffer, version, packages)
	}
	for role, n := range nodes {
		kit.Must(t, farm.Daemon(n).Stop())
		c := kit.Contain(t, n, packages)
		in[role] = c
		c.Run(t, "dpkg", "--no-triggers", "-i", "/root/share/proffer_0.1_amd64.deb")
		configure(t, c, bed, n, role)
		c.Run(t, "systemctl", "enable", "--now", "proffer-"+role)
		kit.WantRestricted(t, c, role)
	}
	flows := kit.Open(t, bed, 20000, 20)

	for role, c := range in {
		kit.WantUpgrade(t, c, role)
		kit.Alive(t, "after an upgrade of "+role, flows)
	}
	wantReloads(t, in["lb"])
	kit.Alive(t, "after reloads", flows)
	for role, c := range in {
		wantRemoval(t, c, role)
	}
	if after, err := os.ReadFile("/var/lib/dpkg/status"); err != nil || string(after) != string(before) {
		t.Errorf("this machine's own packages changed: %v", err)
	}
}

// configure gives a node's daemon its files, at the usual places.
func configure(t *testing.T, c *kit.Container, bed *testbed.Bed, n *testbed.Node, role string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(bed.Dir, n.Name+".yaml"))
	kit.Must(t, err)
	keys, err := os.ReadFile(filepath.Join(bed.Dir, n.Name+".keys"))
	kit.Must(t, err)
	own := strings.NewReplacer(
		filepath.Join(bed.Dir, n.Name+".keys"), "/etc/proffer/"+role+".keys",
		filepath.Join(bed.Dir, n.Name+".sock"), "/run/proffer/"+role+".sock",
		filepath.Join(bed.Dir, n.Name+".pools"), "/var/lib/proffer/lb.json",
		n.Pin(), "/sys/fs/bpf/proffer/"+role+"-"+n.Name,
	).Replace(string(text))
	if strings.Contains(own, bed.Dir) {
		t.Fatalf("it names this machine's files:\n%s", own)
	}
	c.Write(t, "/etc/proffer/"+role+".keys", string(keys))
	c.Write(t, "/etc/proffer/"+role+".yaml", own)
}

// wantReloads: `systemctl reload` fails for a file with a mistake, and for one that the daemon refuses, and says
// why; it works with a good file.
func wantReloads(t *testing.T, c *kit.Container) {
	t.Helper()
	good := c.Run(t, "cat", "/etc/proffer/lb.yaml") + "\n"
	for bad, why := range map[string]string{
		good + "nonsense: 1\n":  "nonsense",
		renamed(t, good, "lb1"): "node.name cannot change while the daemon runs",
	} {
		c.Write(t, "/etc/proffer/lb.yaml", bad)
		if out, err := c.Command("systemctl", "reload", "proffer-lb").CombinedOutput(); err == nil {
			t.Errorf("a reload that must fail, %s, does not: %s", why, out)
		}
		if log := c.Run(t, "journalctl", "-u", "proffer-lb", "-n", "20", "--no-pager"); !strings.Contains(log, why) {
			t.Errorf("the log does not say %q:\n%s", why, log)
		}
		c.Run(t, "systemctl", "is-active", "proffer-lb")
	}
	c.Write(t, "/etc/proffer/lb.yaml", good)
	c.Run(t, "systemctl", "reload", "proffer-lb")
	c.Run(t, "systemctl", "is-active", "proffer-lb")
}

// wantRemoval removes the package, and then its files.
func wantRemoval(t *testing.T, c *kit.Container, role string) {
	t.Helper()
	if link := c.Run(t, "ip", "-d", "link", "show", "eth0"); !strings.Contains(link, "xdp") {
		t.Errorf("%s has no program:\n%s", role, link)
	}
	c.Run(t, "dpkg", "--no-triggers", "-r", "proffer")
	if link := c.Run(t, "ip", "-d", "link", "show", "eth0"); strings.Contains(link, "xdp") {
		t.Errorf("%s still has its program:\n%s", role, link)
	}
	if pins := c.Run(t, "find", "/sys/fs/bpf", "-type", "f", "!", "-name", "*.debug"); pins != "" {
		t.Errorf("%s still has pins: %s", role, pins)
	}
	c.Fails(t, "systemctl", "is-active", "proffer-"+role)
	if text := c.Run(t, "cat", "/etc/proffer/farm.yaml"); text != "# mine" {
		t.Errorf("the operator's file is now\n%s", text)
	}
	c.Run(t, "dpkg", "--no-triggers", "-P", "proffer")
	c.Fails(t, "cat", "/etc/proffer/farm.yaml")
	c.Run(t, "test", "-e", "/etc/proffer/"+role+".yaml") // written by the operator
	c.Fails(t, "test", "-e", "/var/lib/proffer")
}
