package nf

import (
	"encoding/binary"
	"fmt"
	"net/netip"

	"proffer/dataplane/objects"
	"proffer/topo"
)

func (n *Node) firewall(f topo.Firewall) (function, error) {
	if len(f.Rules) > topo.MaxRules {
		return function{}, fmt.Errorf("firewall: %d rules: at most %d", len(f.Rules), topo.MaxRules)
	}
	setting := objects.NFFirewallSetting{Rules: uint32(len(f.Rules))}
	for i, r := range f.Rules {
		if r.Low > r.High {
			return function{}, fmt.Errorf("firewall: rule %d has ports %d to %d", i+1, r.Low, r.High)
		}
		to := &setting.Rule[i]
		to.Low, to.High, to.Protocol = r.Low, r.High, r.Protocol
		if r.High == 0 {
			to.High = 0xffff
		}
		if r.Allow {
			to.Allow = 1
		}
		to.Source.Net.In6U.U6Addr8, to.Source.Mask.In6U.U6Addr8 = masked(r.Source)
		to.Destination.Net.In6U.U6Addr8, to.Destination.Mask.In6U.U6Addr8 = masked(r.Destination)
	}
	return function{objects.NFProgNodeFirewall, func(slot uint32) error { return n.objs.FirewallSettings.Put(slot, &setting) }}, nil
}

// masked is a prefix as the programs compare it; the zero Prefix fits all addresses.
func masked(p netip.Prefix) (net, mask [16]byte) {
	if !p.IsValid() {
		return net, mask
	}
	bits := p.Bits()
	if p.Addr().Is4() {
		bits += 96
	}
	for i := range bits {
		mask[i/8] |= 0x80 >> (i % 8)
	}
	return p.Masked().Addr().As16(), mask
}

func (n *Node) ids(f topo.IDS) (function, error) {
	if len(f.Patterns) < 1 || len(f.Patterns) > topo.MaxPatterns {
		return function{}, fmt.Errorf("ids: %d patterns: want 1 to %d", len(f.Patterns), topo.MaxPatterns)
	}
	setting := objects.NFIdsSetting{Patterns: uint32(len(f.Patterns))}
	for i, p := range f.Patterns {
		pattern, err := patternOf(p.Bytes)
		if err != nil {
			return function{}, fmt.Errorf("ids: %w", err)
		}
		if p.Drop {
			pattern.Drop = 1
		}
		setting.Pattern[i] = pattern
	}
	return function{objects.NFProgNodeIds, func(slot uint32) error { return n.objs.IdsSettings.Put(slot, &setting) }}, nil
}

func (n *Node) rewriter(f topo.Rewriter) (function, error) {
	pattern, err := patternOf(f.From)
	if err != nil || len(f.From) != len(f.To) {
		return function{}, fmt.Errorf("rewriter: %q to %q: want as many bytes, 1 to %d", f.From, f.To, topo.MaxPatternBytes)
	}
	setting := objects.NFRewriterSetting{Pattern: pattern}
	copy(setting.To[:], f.To)
	return function{objects.NFProgNodeRewriter, func(slot uint32) error { return n.objs.RewriterSettings.Put(slot, &setting) }}, nil
}

// patternOf is the bytes as the programs compare them, a word at a time.
func patternOf(bytes string) (p objects.NFPattern, err error) {
	if len(bytes) < 1 || len(bytes) > topo.MaxPatternBytes {
		return p, fmt.Errorf("a pattern of %d bytes: want 1 to %d", len(bytes), topo.MaxPatternBytes)
	}
	var value, mask [topo.MaxPatternBytes]byte
	for i := range copy(value[:], bytes) {
		mask[i] = 0xff
	}
	for i := range p.Value {
		p.Value[i], p.Mask[i] = binary.NativeEndian.Uint64(value[8*i:]), binary.NativeEndian.Uint64(mask[8*i:])
	}
	p.Length = uint32(len(bytes))
	return p, nil
}

// Matches returns the packets so far with each pattern of the IDS at a place of a service's chain.
func (n *Node) Matches(service, place, patterns int) (all []uint64, err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	slot := service*topo.MaxChain + place
	for i := range patterns {
		var perCPU []uint64
		if err := n.objs.IdsCounts.Lookup(uint32(slot*topo.MaxPatterns+i), &perCPU); err != nil {
			return nil, fmt.Errorf("read the matches of service %d: %w", service, err)
		}
		var sum uint64
		for _, c := range perCPU {
			sum += c
		}
		all = append(all, sum)
	}
	return all, nil
}
