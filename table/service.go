package table

import (
	"fmt"

	"proffer/policy"
	"proffer/topo"
)

// Of is the table of a service for any of its pools: svc.Servers, or that of an
// earlier version. The numbers in its lists are indices into pool.
func Of(svc *topo.Service, pool []topo.Server) (*Table, error) {
	choices := svc.Candidates()
	buckets := svc.Buckets
	if buckets == 0 {
		buckets = DefaultBuckets
	}
	if svc.Select == topo.Random {
		return random(pool, buckets, choices)
	}
	servers := make([]Server, len(pool))
	for i, s := range pool {
		if s.Weight < 0 || s.Weight > 0xffff {
			return nil, fmt.Errorf("table: server %s has weight %d: want 0 to 65535", s.Name, s.Weight)
		}
		servers[i] = Server{ID: s.At().String(), Weight: uint16(s.Weight)}
	}
	return Build(servers, buckets, choices)
}

// random draws every list on its own, as SRLB does for every flow (§III): c
// different servers, each ordered list equally likely. Weights but 0 are alike.
func random(pool []topo.Server, m, c int) (*Table, error) {
	if err := checkSize(len(pool), m, c); err != nil {
		return nil, err
	}
	var takers []uint16
	for i, s := range pool {
		if s.Weight > 0 {
			takers = append(takers, uint16(i))
		}
	}
	t := &Table{buckets: m, choices: min(c, len(takers)), lists: make([]uint16, 0, m*c)}
	for bucket := range m {
		for _, i := range policy.Candidates(policy.Mix(uint64(bucket)), len(takers), c) {
			t.lists = append(t.lists, takers[i])
		}
	}
	return t, nil
}
