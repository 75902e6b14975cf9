package plane_test

import (
	"errors"
	"io"
	"net/netip"
	"testing"

	"proffer/dataplane"
	"proffer/dataplane/agent"
	"proffer/dataplane/bench"
	"proffer/dataplane/internal/plane"
	"proffer/dataplane/lb"
	"proffer/proof/rig"
)

// TestVerified: the programs leave the verifier most of its patience, in a daemon and in the
// bench, and a change that adds to them notices its cost.
func TestVerified(t *testing.T) {
	rig.Enter(t)
	cfg := rig.LBConfig(rig.Hunting(2, 4))
	for i := len(cfg.Domain); i < plane.MaxBlocks; i++ {
		cfg.Domain = append(cfg.Domain, netip.PrefixFrom(netip.AddrFrom16([16]byte{0xfd, byte(i)}), 48))
	}
	l, err := lb.New(cfg)
	checkVerified(t, l, err)
	served := rig.AgentConfig(1024, rig.Offering(rig.HuntPort))
	a, err := agent.New(served)
	checkVerified(t, a, err)
	b, err := bench.NewAgent(served)
	checkVerified(t, b, err)
}

// checkVerified checks the programs of a data plane, and closes it.
func checkVerified(t *testing.T, p interface {
	Verified() ([]dataplane.Verified, error)
	io.Closer
}, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	all, err := p.Verified()
	if err := errors.Join(err, p.Close()); err != nil {
		t.Fatal(err)
	}
	const most = 24_000 // the kernel stops at a million; each change is to notice what it adds
	for _, v := range all {
		t.Logf("%T: %s: %d", p, v.Program, v.Instructions)
		if v.Instructions < 1000 || v.Instructions > most {
			t.Errorf("the verifier looked at %d instructions of %s: %d at most", v.Instructions, v.Program, most)
		}
	}
}
