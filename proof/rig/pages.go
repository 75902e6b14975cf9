package rig

import (
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"

	"proffer/dataplane/objects"
	"proffer/policy"
	"proffer/topo"
)

// flowKey is the test's flow in the programs' maps.
func flowKey(f policy.Flow) (key objects.LBTuple) {
	key.Client.In6U.U6Addr8, key.Vip.In6U.U6Addr8 = f.Client.Addr().As16(), f.VIP.Addr().As16()
	key.ClientPortBe, key.VipPortBe = objects.PortBits(f.Client.Port()), objects.PortBits(f.VIP.Port())
	key.Protocol = topo.TCP.Number()
	return key
}

const Mmapable = 0x400 // BPF_F_MMAPABLE

func PagesOf(t testing.TB, m *ebpf.Map) *ebpf.Memory {
	t.Helper()
	mem, err := m.Memory()
	if err != nil {
		t.Fatalf("map %v into memory: %v", m, err)
	}
	return mem
}

// SectionOf finds the map of a program that holds one of its sections.
func SectionOf(t testing.TB, prog *ebpf.Program, section string) *ebpf.Map {
	t.Helper()
	info, err := prog.Info()
	if err != nil {
		t.Fatal(err)
	}
	ids, _ := info.MapIDs()
	for _, id := range ids {
		m, err := ebpf.NewMapFromID(id)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { m.Close() })
		if about, err := m.Info(); err == nil && strings.HasSuffix(about.Name, section) {
			return m
		}
	}
	t.Fatalf("%s has no section %s", prog, section)
	return nil
}

// LimitRefusal is enum limit's (bpf/core/limit.h).
const LimitRefusal = 5

// SpendOf takes all tokens of one owner for one kind of cost, at an instant of virtual time.
func SpendOf(t testing.TB, limits *ebpf.Map, now time.Duration, limit, owner uint64) {
	t.Helper()
	at := uint32(policy.Mix(owner*16+limit) % uint64(limits.MaxEntries()))
	if err := limits.Put(at, int64(now)); err != nil {
		t.Fatal(err)
	}
}

// Spend takes all tokens of the limits of every owner, at an instant of virtual time.
func Spend(t testing.TB, limits *ebpf.Map, now time.Duration) {
	t.Helper()
	at, empty := make([]uint32, limits.MaxEntries()), make([]int64, limits.MaxEntries())
	for i := range at {
		at[i], empty[i] = uint32(i), int64(now)
	}
	if _, err := limits.BatchUpdate(at, empty, nil); err != nil {
		t.Fatal(err)
	}
}
