package paper

import (
	"math"
	"testing"

	"proffer/lab/figures"
	"proffer/lab/sim"
)

// TestHops against thrown dice.
func TestHops(t *testing.T) {
	farm := sim.FarmA()
	for n := 1; n <= 5; n++ {
		middle := 0.55 * float64(n)
		if got := hops(farm, n, middle); math.Abs(got-0.5) > 1e-9 {
			t.Errorf("%d hops: %v at the mean", n, got)
		}
	}
	if got, want := hops(farm, 1, 0.325), 0.25; math.Abs(got-want) > 1e-9 {
		t.Errorf("one hop: %v, want %v", got, want)
	}
	// two: a triangle, (x/0.9)²/2 up to its middle
	if got, want := hops(farm, 2, 0.2+0.45), 0.125; math.Abs(got-want) > 1e-9 {
		t.Errorf("two hops: %v, want %v", got, want)
	}
}

// TestTwoServers: under wcmp with the right weights both queues are M/M/1/Q at
// full load, so every state is equally likely.
func TestTwoServers(t *testing.T) {
	sum, states := 0.0, 0.0
	for i := range queueLength + 1 {
		for j := range queueLength + 1 {
			if i+j > 0 {
				a, b := float64(i), float64(j)
				sum += (a*a/fast + b*b/slow) / (a + b)
				states++
			}
		}
	}
	if got, want := weighted(scenes[0], rules["wcmp"]), sum/states; math.Abs(got-want) > 1e-6*want {
		t.Errorf("got %v, want %v", got, want)
	}
}

// TestScaled: a policy without steps does not notice.
func TestScaled(t *testing.T) {
	plain := at(farmB("c1:2", 4), "lsq", 0.8, sketch)
	double := scaled(plain, 0.8, 2)
	a, err := plain.run(1)
	if err != nil {
		t.Fatal(err)
	}
	b, err := double.run(1)
	if err != nil {
		t.Fatal(err)
	}
	if math.Abs(b.Mean/a.Mean-2) > 0.01 {
		t.Errorf("means %v and %v, want twice as much", a.Mean, b.Mean)
	}
}

// TestFitted finds the two scales that made the measurements.
func TestFitted(t *testing.T) {
	single := figures.Curve{Name: "single"}
	for _, rho := range steps(0.1, 0.8, 0.1) {
		single.Points = append(single.Points, figures.Point{X: rho, Y: 0.19 / (1 - 0.9*rho)})
	}
	models, err := fitted([]figures.Curve{single, {Name: "a"}, {Name: "b"}, {Name: "c"}, {Name: "d"}})
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range models[0].Points {
		if want := 0.19 / (1 - 0.9*p.X); math.Abs(p.Y-want) > 1e-6 {
			t.Errorf("at %v: %v, want %v", p.X, p.Y, want)
		}
	}
}

func TestSteps(t *testing.T) {
	if got := steps(0.1, 0.5, 0.1); len(got) != 5 || got[2] != 0.3 || got[4] != 0.5 {
		t.Errorf("got %v", got)
	}
}
