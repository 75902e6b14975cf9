package history

import (
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"proffer/topo"
)

// TestDeliveries: the record has every delivery of a server, and refuses one that it does not know.
func TestDeliveries(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lb.json")
	servers := []topo.Server{
		{Name: "a", Locator: netip.MustParsePrefix("5f00:0:2:1::/64"), Weight: 1},
		{Name: "b", Delivery: topo.ByDX4, Locator: netip.MustParsePrefix("5f00:0:2:2::/64"), Weight: 1},
		{Name: "c", Delivery: topo.ByL2, Address: netip.MustParseAddr("2001:db8:2::3"), Weight: 1},
		{Name: "d", Delivery: topo.ByVXLAN, Address: netip.MustParseAddr("10.0.0.4"), VNI: 100, MAC: topo.MAC{2, 0, 0, 0, 0, 1}, Weight: 1},
	}
	cfg := &topo.LB{Services: []topo.Service{{VIP: web, Servers: servers}}}
	if err := write((&Record{}).Next(cfg, at(0), keep), path); err != nil {
		t.Fatal(err)
	}
	r, err := Load(path)
	if err != nil || !reflect.DeepEqual(r.Services()[0].Servers, servers) {
		t.Fatalf("%v: %+v", err, r)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range [][3]string{
		{`"l2"`, `"l3"`, `server c has delivery "l3", which this version does not know`},
		{`"address": "2001:db8:2::3",`, "", "server c has neither locator nor address"},
	} {
		unsigned, _, _ := strings.Cut(string(text), `{"sha256"`)
		fresh := strings.Replace(unsigned, c[0], c[1], 1)
		if err := os.WriteFile(path, []byte(fresh), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := Load(path); err == nil || !strings.Contains(err.Error(), c[2]) {
			t.Errorf("%s: %v", c[0], err)
		}
	}
}
