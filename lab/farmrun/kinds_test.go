package farmrun

import (
	"slices"
	"testing"

	"proffer/lab/farmrun/farmtest"
	"proffer/lab/traffic/responder"
)

// TestKinds: the last servers are the fast ones, by speed, by cores, or by either; the load
// is of the capacity of all, and each weight is a server's part of it.
func TestKinds(t *testing.T) {
	base := Kinds{Servers: 3, Cores: 2, Workers: 32}
	for _, c := range []struct {
		fast, cores int
		speed       float64
		capacity    float64
		weights     []int
	}{
		{0, 0, 0, 6, nil},
		{1, 0, 2, 8, []int{20, 20, 40}},
		{2, 4, 0, 10, []int{20, 40, 40}},
		{1, 3, 1.5, 8.5, []int{20, 20, 45}},
		{3, 0, 2, 12, nil},
	} {
		k := base
		k.Fast, k.FastCores, k.Speed = c.fast, c.cores, c.speed
		if err := k.Check(); err != nil {
			t.Errorf("%+v: %v", k, err)
		}
		if got := k.Capacity(); got != c.capacity {
			t.Errorf("%+v: capacity %v, want %v", k, got, c.capacity)
		}
		if got := k.WeightsOf(false); !slices.Equal(got, c.weights) {
			t.Errorf("%+v: weights %v, want %v", k, got, c.weights)
		}
	}
	k := base
	k.Fast, k.Speed = 1, 2
	if got := k.WeightsOf(true); !slices.Equal(got, []int{40, 40, 20}) {
		t.Errorf("inverted: %v", got)
	}
	if got, want := k.Named("s3"), (responder.Machine{Cores: 2, Workers: 32, Speed: 2}); got != want {
		t.Errorf("s3 is %+v, want %+v", got, want)
	}
	if k.Faster(ServerIndex("lb1")) || k.Faster(ServerIndex("")) || k.Faster(ServerIndex("s2")) {
		t.Error("another node than s3 is fast")
	}
}

// TestCompared: every spelling is undone by String, and wrong weights want a policy that heeds
// weights.
func TestCompared(t *testing.T) {
	for _, spelt := range []string{"single", "single:inverted", "hunt:static:4:inverted", "learned", "sed:inverted", "wcmp:inverted"} {
		c, err := ParseCompared(spelt)
		if err != nil || c.String() != spelt {
			t.Errorf("%s: %s, %v", spelt, c, err)
		}
	}
	for spelt, want := range map[string]string{
		"learned:inverted":         `policy "learned:inverted": learned heeds no configured weights`,
		"lsq:inverted":             `policy "lsq:inverted": lsq heeds no configured weights`,
		"single:inverted:inverted": `unknown policy "single:inverted"`,
	} {
		_, err := ParseCompared(spelt)
		farmtest.Holds(t, spelt, err, want)
	}
}

// TestConcludeLearned: with a policy that heeds more than the flow's hash any server may
// answer, and with two LBs that of a request is not known.
func TestConcludeLearned(t *testing.T) {
	r, farm, books := concluded(t)
	c, err := ParseCompared("learned")
	if err != nil {
		t.Fatal(err)
	}
	farm.Service.Dispatch = c.Dispatch
	farm.Bed.LBs = append(farm.Bed.LBs, farm.Bed.LBs[0])
	for i := range r.Rows {
		r.Rows[i].Server = "s4"
	}
	clear(books)
	books["s4"] = []string{"0", "1", "2"}
	if _, err := conclude(r, farm, books); err != nil {
		t.Fatal(err)
	}
	if row := r.Rows[0]; row.Hops != 1 || row.LB != "" {
		t.Errorf("%+v", row)
	}
}
