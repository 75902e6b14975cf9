package table

import (
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// figure6 holds the permutations of 6LB Figure 6 (M = 7, N = 4).
var figure6 = [][]int{
	{4, 5, 6, 0, 1, 2, 3},
	{1, 3, 5, 0, 2, 4, 6},
	{5, 3, 1, 6, 4, 2, 0},
	{6, 0, 1, 2, 3, 4, 5},
}

// TestFigure6: the paper's tables before and after the removal of instance 0,
// and its failure rate of 10 %.
func TestFigure6(t *testing.T) {
	before := mustFrom(t, figure6, 7, 2)
	wantLists(t, before, [][]uint16{{3, 1}, {1, 2}, {3, 0}, {1, 2}, {0, 1}, {2, 0}, {3, 0}})

	without := slices.Clone(figure6)
	without[0] = nil
	after := mustFrom(t, without, 7, 2)
	wantLists(t, after, [][]uint16{{3, 1}, {1, 2}, {3, 1}, {1, 2}, {3, 2}, {2, 1}, {3, 2}})

	failures, flows := Failures(before, after, []bool{true, false, false, false})
	if failures != 1 || flows != 10 {
		t.Errorf("%d failures of %d flows, want 1 of 10", failures, flows)
	}
}

func wantLists(t *testing.T, tab *Table, want [][]uint16) {
	t.Helper()
	for b, list := range want {
		if got := tab.Bucket(b); !slices.Equal(got, list) {
			t.Errorf("bucket %d: %v, want %v", b, got, list)
		}
	}
}

// TestBuildIsAlgorithm3: the fast loop against the printed one, on random farms
// of every small shape.
func TestBuildIsAlgorithm3(t *testing.T) {
	const seed = 3
	rng := rand.New(rand.NewPCG(seed, 0))
	for i := range 2000 {
		servers := farm("s", rng.IntN(12))
		for j := range servers {
			if rng.IntN(5) == 0 {
				servers[j].Weight = 0
			}
		}
		m, c := 1+rng.IntN(100), 1+rng.IntN(MaxChoices)
		got := mustBuild(t, servers, m, c)
		want := mustFrom(t, Permutations(servers, m), m, c)
		if !reflect.DeepEqual(got, want) {
			t.Fatalf("farm %d (seed %d): M=%d C=%d %v\ngot  %v\nwant %v", i, seed, m, c, servers, got, want)
		}
	}
}

// TestWeightsTakeTurns: the heap against the plain search for the least k/w.
func TestWeightsTakeTurns(t *testing.T) {
	const seed = 4
	rng := rand.New(rand.NewPCG(seed, 0))
	for i := range 2000 {
		servers := farm("s", rng.IntN(10))
		for j := range servers {
			servers[j].Weight = uint16(rng.IntN(8))
		}
		m, c := 1+rng.IntN(60), 1+rng.IntN(MaxChoices)
		if got, want := mustBuild(t, servers, m, c), slowWeighted(servers, m, c); !reflect.DeepEqual(got, want) {
			t.Fatalf("farm %d (seed %d): M=%d C=%d %v\ngot  %v\nwant %v", i, seed, m, c, servers, got, want)
		}
	}
}

// slowWeighted is Algorithm 3 with the turn of the least turns/weight next. Its
// farms are sorted by identity already.
func slowWeighted(servers []Server, m, c int) *Table {
	p := Permutations(servers, m)
	present := 0
	for i := range p {
		if p[i] != nil {
			present++
		}
	}
	f := newFilling(m, min(c, present))
	next, took := make([]int, len(p)), make([]int, len(p))
	for f.open > 0 {
		turn := -1
		for i := range p {
			if next[i] < len(p[i]) && (turn < 0 || took[i]*int(servers[turn].Weight) < took[turn]*int(servers[i].Weight)) {
				turn = i
			}
		}
		f.turn(p[turn], &next[turn], uint16(turn))
		took[turn]++
	}
	return f.table()
}

// TestNoServerTwice holds for every list, also where servers are fewer than
// choices, where the printed algorithm does not end.
func TestNoServerTwice(t *testing.T) {
	for _, m := range []int{1, 2, 7, 64, 1000, 4096, 65537} {
		for n := range 7 {
			for c := 1; c <= MaxChoices; c++ {
				servers := farm("s", n)
				for i := range servers {
					servers[i].Weight = uint16(1 + i*i*i)
				}
				tab := mustBuild(t, servers, m, c)
				if tab.Choices() != min(n, c) || tab.Buckets() != m {
					t.Fatalf("M=%d N=%d C=%d: %d buckets of %d", m, n, c, tab.Buckets(), tab.Choices())
				}
				wantDifferent(t, tab, n)
			}
		}
	}
}

func wantDifferent(t *testing.T, tab *Table, n int) {
	t.Helper()
	for b := range tab.Buckets() {
		list := slices.Clone(tab.Bucket(b))
		slices.Sort(list)
		if len(slices.Compact(list)) != tab.Choices() || len(list) > 0 && int(list[len(list)-1]) >= n {
			t.Fatalf("bucket %d of %d servers: %v", b, n, tab.Bucket(b))
		}
	}
}

// TestOrderOfServersChangesNothing but the numbers.
func TestOrderOfServersChangesNothing(t *testing.T) {
	const seed = 5
	rng := rand.New(rand.NewPCG(seed, 0))
	for _, weighted := range []bool{false, true} {
		servers := farm("s", 50)
		for i := range servers {
			if weighted {
				servers[i].Weight = uint16(rng.IntN(5))
			}
		}
		shuffled := slices.Clone(servers)
		rng.Shuffle(len(shuffled), func(i, j int) { shuffled[i], shuffled[j] = shuffled[j], shuffled[i] })
		a, b := mustBuild(t, servers, 4096, 3), mustBuild(t, shuffled, 4096, 3)
		for i := range a.lists {
			if servers[a.lists[i]] != shuffled[b.lists[i]] {
				t.Fatalf("place %d (seed %d, weighted %v): %v and %v", i, seed, weighted, servers[a.lists[i]], shuffled[b.lists[i]])
			}
		}
	}
}

// TestFairness: "each application instance picks the same number of buckets,
// except potentially one in the last round" (§III-B.2), and in proportion to
// weights.
func TestFairness(t *testing.T) {
	servers := farm("s", 1000)
	for server, places := range countPlaces(mustBuild(t, servers, DefaultBuckets, 2), len(servers)) {
		if places != 131 && places != 132 { // 2·65537/1000 = 131.07
			t.Errorf("server %d has %d places", server, places)
		}
	}
	total := 0.0
	for i := range servers {
		servers[i].Weight = uint16(i % 7)
		total += float64(i % 7)
	}
	for server, places := range countPlaces(mustBuild(t, servers, DefaultBuckets, 2), len(servers)) {
		want := float64(servers[server].Weight) / total * 2 * DefaultBuckets
		if math.Abs(float64(places)-want) > 1.01 {
			t.Errorf("server %d of weight %d has %d places, want %.1f", server, servers[server].Weight, places, want)
		}
	}
}

func countPlaces(tab *Table, n int) []int {
	places := make([]int, n)
	for _, server := range tab.lists {
		places[server]++
	}
	return places
}

// TestExtremeWeights: one server that wants everything, many that want little,
// all sizes at their limits.
func TestExtremeWeights(t *testing.T) {
	servers := farm("s", MaxServers)
	servers[7].Weight = math.MaxUint16
	tab := mustBuild(t, servers, DefaultBuckets, MaxChoices)
	wantDifferent(t, tab, MaxServers)
	if places := countPlaces(tab, MaxServers); places[7] != DefaultBuckets {
		t.Errorf("the heaviest has %d places, want one in each of %d lists", places[7], DefaultBuckets)
	} else if slices.Min(places) == 0 {
		t.Error("a light server has no place")
	}
}

func TestWalkMeetsEveryBucketOnce(t *testing.T) {
	for m := 1; m <= 400; m++ {
		for i, p := range Permutations(farm("s", 5), m) {
			if !permutes(p, m) {
				t.Fatalf("M=%d: server %d walks %v", m, i, p)
			}
		}
	}
}

// TestLookup: hashes spread evenly, the ends included, and nothing is allocated.
func TestLookup(t *testing.T) {
	tab := mustBuild(t, farm("s", 10), 7, 2)
	for b := range 7 {
		low := (uint64(b)<<32 + 6) / 7 << 32
		if tab.Index(low) != b || tab.Index(low-1) != (b+6)%7 {
			t.Errorf("bucket %d begins at another hash than %#x", b, low)
		}
	}
	if n := testing.AllocsPerRun(100, func() { tab.Lookup(rand.Uint64()) }); n != 0 {
		t.Errorf("Lookup allocates %v times", n)
	}
	if list := mustBuild(t, nil, 7, 2).Lookup(1 << 63); len(list) != 0 {
		t.Errorf("no server, and a list of %v", list)
	}
}

func TestRefuses(t *testing.T) {
	twice := []Server{{"a", 1}, {"b", 1}, {"a", 0}}
	for _, c := range []struct {
		servers []Server
		m, c    int
		want    string
	}{
		{nil, 0, 2, "table of 0 buckets: want 1 to 16777216"},
		{nil, MaxBuckets + 1, 2, "table of 16777217 buckets: want 1 to 16777216"},
		{nil, 7, 0, "table of 0 choices: want 1 to 4"},
		{nil, 7, 5, "table of 5 choices: want 1 to 4"},
		{farm("s", MaxServers+1), 7, 2, "table of 4097 servers: want at most 4096"},
		{twice, 7, 2, "table: server a stands there twice"},
		{[]Server{{"", 1}}, 7, 2, "table: a server has no identity"},
	} {
		if _, err := Build(c.servers, c.m, c.c); err == nil || err.Error() != c.want {
			t.Errorf("got %v, want %s", err, c.want)
		}
	}
	for _, p := range [][]int{{0, 1}, {0, 1, 1}, {0, 1, 3}, {-1, 0, 1}, {0, 1, 2, 0}, {}} {
		if _, err := FromPermutations([][]int{{0, 1, 2}, p}, 3, 2); err == nil || !strings.Contains(err.Error(), "p[1] is no permutation of 0 … 2") {
			t.Errorf("%v: %v", p, err)
		}
	}
}

// farm makes servers of weight 1 with identities in ascending order.
func farm(name string, n int) []Server {
	servers := make([]Server, n)
	for i := range servers {
		servers[i] = Server{fmt.Sprintf("%s%04d", name, i), 1}
	}
	return servers
}

func mustBuild(t testing.TB, servers []Server, m, c int) *Table {
	t.Helper()
	tab, err := Build(servers, m, c)
	if err != nil {
		t.Fatal(err)
	}
	return tab
}

func mustFrom(t testing.TB, p [][]int, m, c int) *Table {
	t.Helper()
	tab, err := FromPermutations(p, m, c)
	if err != nil {
		t.Fatal(err)
	}
	return tab
}
