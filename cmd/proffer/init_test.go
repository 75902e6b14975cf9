package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"proffer/cmd/internal/cli"
	"proffer/farm"
)

// TestInit: the farm that is printed can be used, each node has secrets that it alone can use, readable by no other
// user, and none is replaced.
func TestInit(t *testing.T) {
	dir := t.TempDir()
	args := []string{"init", "--farm", "shop", "--lb", "lb1=2001:db8:1::1", "--server", "s1=10.0.0.2", "--server", "s2=2001:db8:1::3", "--agentless", "k1=10.0.0.4",
		"--vip", "[2001:db8:f::1]:80", "--vip", "192.0.2.10:80", "--secrets", dir}
	code, text, stderr := call(t, args...)
	if code != cli.OK {
		t.Fatalf("exit %d, %s", code, stderr)
	}
	f, warnings, err := farm.Parse("farm.yaml", []byte(text))
	if err != nil || len(warnings) > 0 || f.Count() != "1 lb, 3 server, 1 services" {
		t.Fatalf("%v, %v\n%s", err, warnings, text)
	}
	keys := map[string]*farm.Secrets{}
	for _, name := range []string{"lb1", "s1", "s2"} {
		path := filepath.Join(dir, "secrets-"+name+".yaml")
		info, err := os.Stat(path)
		if err != nil || info.Mode().Perm() != 0o600 {
			t.Fatalf("%s: %v, %v", path, info, err)
		}
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if keys[name], err = farm.ParseSecrets(path, data, f, f.Node(name)); err != nil {
			t.Fatal(err)
		}
		if _, err := farm.ParseSecrets(path, data, f, f.Node(map[string]string{"lb1": "s1", "s1": "s2", "s2": "s1"}[name])); err == nil {
			t.Errorf("the secrets of %s are those of another node", name)
		}
	}
	if entries, _ := os.ReadDir(dir); len(entries) != 3 {
		t.Errorf("%d files, want those of nodes with software of ours", len(entries))
	}
	lb := f.LB(f.Node("lb1"), keys["lb1"], farm.Local{Link: "eth0"})
	for _, name := range []string{"s1", "s2"} {
		n := f.Node(name)
		agent := f.Agent(n, keys[name], farm.Local{Link: "eth0", CPUs: 2})
		whole := f.Agent(n, keys["lb1"], farm.Local{Link: "eth0", CPUs: 2}) // as derived from the masters
		if agent.Keys[0] != whole.Keys[0] || agent.Keys[0].Farm != lb.Keys[0].Farm || agent.Keys[0].Server == lb.Keys[0].Server {
			t.Errorf("%s signs by %v", name, agent.Keys)
		}
	}
	wantLine(t, args, cli.Failed, filepath.Join(dir, "secrets-lb1.yaml")+" is there already")
}

func TestInitUsage(t *testing.T) {
	for args, want := range map[string]string{
		"init":                   "--lb NAME=ADDR is missing",
		"init --lb lb1=10.0.0.1": "--server NAME=ADDR or --agentless NAME=ADDR is missing",
		"init --lb lb1=10.0.0.1 --server s1=10.0.0.2":                            "--vip ADDR:PORT is missing",
		"init --lb lb1 --server s1=10.0.0.2 --vip 192.0.2.1:80":                  "--lb \"lb1\": want NAME=ADDR",
		"init --lb lb1=10.0.0.1 --server s1=fe80::1 --vip 192.0.2.1:80":          "--server s1=fe80::1: \"fe80::1\" is link-local",
		"init --lb lb1=10.0.0.1 --server s1=10.0.0.2 --vip 192.0.2.1":            "--vip \"192.0.2.1\": want ADDR:PORT",
		"init --lb lb1=10.0.0.1 --server s1=10.0.0.1 --vip 192.0.2.1:80":         "the new farm:5:16: nodes.s1.server: \"10.0.0.1\" is already that of nodes.lb1.lb",
		"run --farm /nowhere/farm.yaml --name lb1 --secrets /nowhere/s.yaml now": "proffer run takes no argument",
	} {
		wantLine(t, strings.Fields(args), cli.Usage, want)
	}
}
