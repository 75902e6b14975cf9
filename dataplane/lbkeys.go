package dataplane

import (
	"fmt"

	"proffer/topo"
	"proffer/wire"
)

// SetKeys gives the programs what this LB signs with and what it knows LBs by.
func (l *LB) SetKeys(keys []topo.SignalKey) error {
	return writeKeys(l.objs.Signing, l.objs.FarmKeys, keys, func(k topo.SignalKey) topo.Key { return k.Farm })
}

// writeServerKeys gives the programs what each server signs with.
func (l *LB) writeServerKeys(keys []topo.SignalKey, servers []topo.Server) error {
	want := map[lbSigner]lbKey{}
	for _, k := range keys {
		for _, s := range servers {
			who := lbSigner{Server: l.numbers.of(s), KeyId: uint32(k.ID)}
			want[who] = bpfKey(wire.ServerKey(k.Server, s.Locator))
		}
	}
	if err := update(l.objs.ServerKeys, l.signers, want); err != nil {
		return fmt.Errorf("write the servers' keys: %w", err)
	}
	if _, err := prune(l.objs.ServerKeys, l.signers, want); err != nil {
		return fmt.Errorf("drop keys of servers: %w", err)
	}
	return nil
}
