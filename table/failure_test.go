package table

import (
	"fmt"
	"math/rand/v2"
	"testing"
)

// TestFigure7 reproduces 6LB §III-B.1 (N = 1000, M = 65537, 20 experiments): with
// two choices up to 44 % fewer flows break than with one, around k = 8.
func TestFigure7(t *testing.T) {
	const seed = 7
	fewer := map[int]float64{}
	for _, k := range []int{4, 8, 14} {
		one, two := meanFailureRate(t, seed, k, 1), meanFailureRate(t, seed, k, 2)
		fewer[k] = 1 - two/one
		t.Logf("k = %2d (seed %d): C = 1 %.3f %%, C = 2 %.3f %%, %.1f %% fewer", k, seed, 100*one, 100*two, 100*fewer[k])
	}
	if fewer[8] < 0.42 || fewer[8] > 0.46 || fewer[8] < fewer[4] || fewer[8] < fewer[14] {
		t.Errorf("fewer failures: %v (seed %d); want about 44 %% at k = 8, and that the most", fewer, seed)
	}
}

func meanFailureRate(t *testing.T, seed uint64, k, c int) float64 {
	t.Helper()
	const runs = 20
	sum := 0.0
	for run := range runs {
		rng := rand.New(rand.NewPCG(seed, uint64(run)))
		servers := farm(fmt.Sprintf("run%d-s", run), 1000)
		before := mustBuild(t, servers, DefaultBuckets, c)
		removed := make([]bool, len(servers))
		for _, s := range rng.Perm(len(servers))[:k] {
			servers[s].Weight, removed[s] = 0, true
		}
		failures, flows := Failures(before, mustBuild(t, servers, DefaultBuckets, c), removed)
		sum += float64(failures) / float64(flows)
	}
	return sum / runs
}

// BenchmarkBuild: two choices should cost at most 1.6 times one (§III-B.3
// expects 1.37 times the steps).
func BenchmarkBuild(b *testing.B) {
	skewed := farm("s", 1000)
	for i := range skewed {
		skewed[i].Weight = uint16(1 + i%10)
	}
	for _, c := range []struct {
		name    string
		servers []Server
		m, c    int
	}{
		{"N=1000/M=65537/C=1", farm("s", 1000), DefaultBuckets, 1},
		{"N=1000/M=65537/C=2", farm("s", 1000), DefaultBuckets, 2},
		{"N=1000/M=65537/C=4", farm("s", 1000), DefaultBuckets, 4},
		{"N=1000/M=65536/C=2", farm("s", 1000), 1 << 16, 2},
		{"N=4096/M=65537/C=2", farm("s", MaxServers), DefaultBuckets, 2},
		{"weights/N=1000/M=65537/C=2", skewed, DefaultBuckets, 2},
	} {
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				mustBuild(b, c.servers, c.m, c.c)
			}
		})
	}
}

func BenchmarkLookup(b *testing.B) {
	tab := mustBuild(b, farm("s", 1000), DefaultBuckets, 2)
	hash := uint64(0)
	sum := 0
	for b.Loop() {
		hash += 0x9e3779b97f4a7c15
		sum += len(tab.Lookup(hash))
	}
	if sum == 0 {
		b.Fatal("empty lists")
	}
}
