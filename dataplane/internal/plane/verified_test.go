package plane_test

import (
	"net/netip"
	"testing"

	"proffer/dataplane/internal/plane"
	"proffer/dataplane/lb"
	"proffer/proof/rig"
)

// TestVerified: the programs leave the verifier most of its patience, and a change that adds
// to them notices its cost.
func TestVerified(t *testing.T) {
	const most = 20_000
	rig.Enter(t)
	cfg := rig.LBConfig(rig.Hunting(2, 4))
	for i := len(cfg.Domain); i < plane.MaxBlocks; i++ {
		cfg.Domain = append(cfg.Domain, netip.PrefixFrom(netip.AddrFrom16([16]byte{0xfd, byte(i)}), 48))
	}
	l, err := lb.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	lb, err := l.Verified()
	if err != nil {
		t.Fatal(err)
	}
	agent, err := rig.NewAgent(t, rig.Hits{}).Verified()
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range append(lb, agent...) {
		t.Logf("%s: %d", v.Program, v.Instructions)
		if v.Instructions < 1000 || v.Instructions > most {
			t.Errorf("the verifier looked at %d instructions of %s: %d at most", v.Instructions, v.Program, most)
		}
	}
}
