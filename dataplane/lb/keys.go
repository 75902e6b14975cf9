package lb

import (
	"fmt"

	"proffer/dataplane/internal/plane"
	"proffer/dataplane/objects"
	"proffer/topo"
	"proffer/wire"
)

// SetKeys gives the programs the keys that this LB signs with and checks LBs by.
func (l *LB) SetKeys(keys []topo.SignalKey) error {
	l.signing = keys
	return plane.WriteKeys(l.objs.Signing, l.objs.FarmKeys, keys, func(k topo.SignalKey) topo.Key { return k.Farm })
}

// writeServerKeys gives the programs the key that each server signs with.
func (l *LB) writeServerKeys(keys []topo.SignalKey, servers []topo.Server) error {
	want := map[objects.LBSigner]objects.LBKey{}
	for _, k := range keys {
		for _, s := range servers {
			if s.Delivery != topo.ByAgent {
				continue
			}
			signer := objects.LBSigner{Server: l.numbers.of(s), KeyId: uint32(k.ID)}
			want[signer] = objects.KeyOf(wire.ServerKey(k.Server, s.Locator))
		}
	}
	if err := plane.Update(l.objs.ServerKeys, l.signers, want); err != nil {
		return fmt.Errorf("write the servers' keys: %w", err)
	}
	if _, err := plane.Prune(l.objs.ServerKeys, l.signers, want); err != nil {
		return fmt.Errorf("drop keys of servers: %w", err)
	}
	return nil
}
