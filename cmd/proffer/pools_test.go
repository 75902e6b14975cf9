package main

import (
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"proffer/cmd/internal/cli"
	"proffer/config"
	"proffer/history"
	"proffer/topo"
)

// TestPools: the printed pools are those of a file that another LB reads.
func TestPools(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lb.json")
	record := &history.Record{}
	one := topo.Server{Name: "s1", Locator: netip.MustParsePrefix("5f00:0:2:1::/64"), Weight: 3}
	for version, servers := range [][]topo.Server{{one}, {}, {one}} {
		svc := topo.Service{VIP: topo.VIP{Addr: netip.MustParseAddr("2001:db8:f::1"), Port: 80}, Version: version, Servers: servers}
		record = record.Next(&topo.LB{Services: []topo.Service{svc}}, history.Moment{}, func(topo.VIP, topo.Version, time.Duration) bool { return false })
	}
	store, _, err := history.Open(path, "", history.Moment{})
	if err == nil {
		err = errors.Join(store.Write(record), store.Close())
	}
	if err != nil {
		t.Fatal(err)
	}
	code, stdout, stderr := call(t, "pools", path)
	if code != 0 || !strings.Contains(stdout, "# [2001:db8:f::1]:80\n") {
		t.Fatalf("exit %d, %s%s", code, stdout, stderr)
	}
	file := `node: {locator: 5f00:0:1:1::/64, interface: eth9, domain: any}
signal_keys: none
candidate_key: 000102030405060708090a0b0c0d0e0f
services:
  - vip: 2001:db8:f::1
    port: 80
    dispatch: single
` + stdout
	lb, err := config.ParseLB("lb.yaml", []byte(file))
	if err != nil || lb.Services[0].Version != 2 || len(lb.Services[0].History) != 2 || lb.Services[0].History[1].Servers[0].Weight != 3 {
		t.Errorf("%v: %+v\n%s", err, lb, file)
	}
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if code, _, stderr := call(t, "pools", path); code != 1 || !strings.Contains(stderr, path+" is no record of pools") {
		t.Errorf("an empty record: exit %d, %s", code, stderr)
	}
	wantLine(t, []string{"pools"}, cli.Usage, "FILE is missing: the record of a load balancer, `state` in its configuration; see `proffer pools --help`\n")
}
