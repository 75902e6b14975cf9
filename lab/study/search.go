package study

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/bits"
	"slices"
	"time"

	"proffer/lab/sim"
	"proffer/lab/stats"
)

// Search finds the fewest servers with which a farm reaches a goal, under each
// policy. The requests stay those of Load; the farm of N servers has its groups
// in the same proportions.
//
// Each N that is tried runs all seeds. Response times fall as servers come, so
// that the N are bisected.
type Search struct {
	Setting  *Setting
	Policies []sim.Policy
	Load     Load
	Goal     Goal
	Seeds    int    // at least 2: one has no interval
	First    uint64 // 0: 1
	Workers  int
}

// Found is the answer for one policy. Servers is the fewest with a mean over seeds
// that reaches the goal; Low and High are the fewest that may reach it, and that
// reach it, by the 95 % interval of that mean. 0: none of up to most times as many
// servers as the farm has.
type Found struct {
	Policy  string  `json:"policy"`
	Farm    string  `json:"farm"`
	Rho     float64 `json:"rho"` // of the farm as it is
	Seeds   int     `json:"seeds"`
	Goal    string  `json:"goal"`
	Servers int     `json:"servers"`
	Low     int     `json:"servers_low"`
	High    int     `json:"servers_high"`
	Tried   []Tried `json:"tried"` // by number of servers
}

// Tried is the result of one number of servers.
type Tried struct {
	Servers int          `json:"servers"`
	Rho     float64      `json:"rho"`
	Value   stats.Number `json:"ms"`
	CI      stats.Number `json:"ci_ms"`
	Refused int          `json:"refused"`
}

// At is the result with Servers; false: there is none.
func (f Found) At() (Tried, bool) {
	i := slices.IndexFunc(f.Tried, func(t Tried) bool { return t.Servers == f.Servers })
	if i < 0 {
		return Tried{}, false
	}
	return f.Tried[i], true
}

// SearchProgress is how far a search is.
type SearchProgress struct {
	Policy   string
	At, Of   int           // policies
	Servers  int           // tried now
	Progress               // of the runs with them
	Left     time.Duration // for the whole search, about
}

// most is how many times its servers a farm may get.
const most = 64

// Check returns an error for a search that cannot run.
func (s *Search) Check() error {
	switch {
	case s.Seeds < 2:
		return errors.New("a search needs 2 seeds at least: one has no interval")
	case len(s.Setting.Farm.Background)+len(s.Setting.Farm.Events) > 0:
		return errors.New("the farm's background work or events name servers by number, but a search changes their number")
	}
	return nil
}

// Run returns the answer for each policy. When ctx ends it returns at once
// the complete answers, and an *Interrupted.
func (s *Search) Run(ctx context.Context, progress func(SearchProgress)) ([]Found, error) {
	found := []Found{}
	begun := time.Now()
	for i, p := range s.Policies {
		h := pursuit{Search: s, ctx: ctx, policy: p, tried: map[int]Tried{}}
		h.progress = func(now SearchProgress) {
			now.At, now.Of = i+1, len(s.Policies)
			each := time.Duration(float64(time.Since(begun)) / max(0.01, float64(i)+h.share(now.Progress)))
			now.Left = max(0, time.Duration(len(s.Policies))*each-time.Since(begun))
			progress(now)
		}
		f, err := h.run()
		if cut := (*Interrupted)(nil); errors.As(err, &cut) {
			return found, s.interrupted(i)
		} else if err != nil {
			return found, err
		}
		found = append(found, f)
	}
	return found, nil
}

func (s *Search) interrupted(complete int) error {
	e := &Interrupted{Rows: complete, Of: len(s.Policies)}
	for _, p := range s.Policies[complete:] {
		e.Missing = append(e.Missing, p.Name)
	}
	return e
}

// pursuit is the search for one policy.
type pursuit struct {
	*Search
	ctx      context.Context
	policy   sim.Policy
	tried    map[int]Tried
	progress func(SearchProgress)
	expected int // numbers of servers that are tried, about
}

func (h *pursuit) run() (Found, error) {
	f := Found{Policy: h.policy.Name, Farm: h.Setting.Name, Rho: h.Load.Rho, Seeds: h.Seeds, Goal: h.Goal.String()}
	var err error
	for _, c := range []struct {
		fewest *int
		by     float64 // of the interval
	}{{&f.Servers, 0}, {&f.Low, -1}, {&f.High, 1}} {
		*c.fewest, err = h.fewest(func(t Tried) bool {
			return float64(t.Value)+float64(c.by*float64(t.CI)) <= h.Goal.Limit
		})
		if err != nil {
			return f, err
		}
	}
	for _, t := range h.tried {
		f.Tried = append(f.Tried, t)
	}
	slices.SortFunc(f.Tried, func(a, b Tried) int { return a.Servers - b.Servers })
	return f, nil
}

// fewest bisects between a number that cannot serve the requests and one that
// meets the goal.
func (h *pursuit) fewest(meets func(Tried) bool) (int, error) {
	size := len(h.Setting.Farm.Servers)
	low := h.tooFew()
	high := max(size, low+1)
	h.expected = max(h.expected, len(h.tried)+bits.Len(uint(high-low)))
	for {
		t, err := h.try(high)
		switch {
		case err != nil:
			return 0, err
		case meets(t):
			return h.bisect(low, high, meets)
		case high >= most*size:
			return 0, nil
		}
		low, high = high, 2*high
	}
}

func (h *pursuit) bisect(low, high int, meets func(Tried) bool) (int, error) {
	for high-low > 1 {
		middle := (low + high) / 2
		t, err := h.try(middle)
		switch {
		case err != nil:
			return 0, err
		case meets(t):
			high = middle
		default:
			low = middle
		}
	}
	return high, nil
}

// tooFew is the most servers that cannot serve the requests in the long run, or
// that the policy cannot choose among.
func (h *pursuit) tooFew() int {
	least := max(1, h.policy.Choices)
	if h.policy.TwoChoices {
		least = 2
	}
	for n := least; ; n++ {
		if h.load(h.Setting.with(n)).End < 1 {
			return n - 1
		}
	}
}

// load is the same requests, as a share of another farm's capacity.
func (h *pursuit) load(s *Setting) Load {
	l := h.Load
	bigger := s.Farm.Capacity(l.Work) / h.Setting.Farm.Capacity(l.Work)
	l.Rho, l.End = round(l.Rho/bigger, 1e9), round(l.End/bigger, 1e9)
	return l
}

func (h *pursuit) try(n int) (Tried, error) {
	if t, known := h.tried[n]; known {
		return t, nil
	}
	setting := h.Setting.with(n)
	load := h.load(setting)
	study := &Study{Setting: setting, Policies: []sim.Policy{h.policy}, Loads: []Load{load},
		Seeds: h.Seeds, First: h.First, Workers: h.Workers, Percentiles: h.Goal.percentiles()}
	rows, err := study.Run(h.ctx, func(p Progress) {
		h.progress(SearchProgress{Policy: h.policy.Name, Servers: n, Progress: p})
	})
	if err != nil {
		return Tried{}, err
	}
	t := Tried{Servers: n, Rho: load.Rho, Refused: rows[0].Refused}
	t.Value, t.CI = h.Goal.of(rows[0])
	h.tried[n] = t
	return t, nil
}

// share is how much of the pursuit is over, about.
func (h *pursuit) share(now Progress) float64 {
	done := float64(len(h.tried)) + now.share()
	return min(0.99, done/math.Max(done+0.5, float64(h.expected)))
}

// with is the farm with n servers: its groups in the same proportions.
func (s *Setting) with(n int) *Setting {
	scaled := *s
	scaled.Farm.Servers = make([]sim.Server, n)
	for i := range scaled.Farm.Servers {
		scaled.Farm.Servers[i] = s.Farm.Servers[i*len(s.Farm.Servers)/n]
	}
	return &scaled
}

func (s *Search) seeds() string {
	first := max(s.First, 1)
	return fmt.Sprintf("seeds %d to %d", first, first+uint64(s.Seeds)-1)
}
