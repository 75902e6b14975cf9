package dataplane

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"

	"proffer/config"
	"proffer/topo"
)

// SetKeys gives the programs what this LB signs with and what it knows LBs by.
func (l *LB) SetKeys(keys []topo.SignalKey) error {
	return writeKeys(l.objs.Signing, l.objs.FarmKeys, keys, func(k topo.SignalKey) topo.Key { return k.Farm })
}

// writeServerKeys gives the programs what each server signs with.
func (l *LB) writeServerKeys(keys []topo.SignalKey, servers []topo.Server) error {
	want := map[lbSigner]bool{}
	for _, k := range keys {
		for _, s := range servers {
			who := lbSigner{Server: l.numbers.of(s), KeyId: uint32(k.ID)}
			want[who] = true
			if err := l.objs.ServerKeys.Put(who, bpfKey(config.ServerKey(k.Server, s.Locator))); err != nil {
				return fmt.Errorf("write key %d of server %s: %w", k.ID, s.Name, err)
			}
		}
	}
	for who := range l.signers {
		if want[who] {
			continue
		}
		if err := l.objs.ServerKeys.Delete(who); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
			return fmt.Errorf("drop key %d of server %d: %w", who.KeyId, who.Server, err)
		}
	}
	l.signers = want
	return nil
}
