package main

import (
	"time"

	"github.com/spf13/pflag"

	"proffer/cmd/internal/cli"
	"proffer/lab/sim"
	"proffer/lab/study"
)

// simFarm are the flags that change a farm, and which requests count.
type simFarm struct {
	lbs         int
	clientRTT   time.Duration
	synFlood    float64
	antagonists bool
	from, to    string
}

func (f *simFarm) add(flags *pflag.FlagSet) {
	flags.IntVar(&f.lbs, "lbs", 0, "LBs, `N` (default: the farm's)")
	flags.DurationVar(&f.clientRTT, "client-rtt", 0, "a round trip of the clients on top of the hops, `TIME` (default: the farm's)")
	flags.Float64Var(&f.synFlood, "syn-flood", 0, "SYNs with forged sources, `TIMES` as many as requests (default: the farm's)")
	flags.BoolVar(&f.antagonists, "antagonists", false, "other work on every server, of a share that changes every 10 s: half the time 0, else .2 to .8")
	flags.StringVar(&f.from, "count-from", "", "where the requests that count begin, `WHERE` a share such as 0.25 or a time such as 30s (default: the farm's)")
	flags.StringVar(&f.to, "count-to", "", "and where they end, `WHERE`")
}

// The limits of a farm file.
const (
	maxLBs   = 1024
	maxRTT   = time.Hour
	maxFlood = 1000
)

// floodExpires is the life of an LB's entry for a SYN, as bpf/lb/flow_table.h has it.
const floodExpires = 10 * time.Second

// apply changes the farm by the flags that are given.
func (f *simFarm) apply(flags *pflag.FlagSet, s *study.Setting) error {
	farm := &s.Farm
	switch {
	case flags.Changed("lbs") && (f.lbs < 1 || f.lbs > maxLBs):
		return cli.BadUsagef("--lbs %d: want 1 to %d", f.lbs, maxLBs)
	case f.clientRTT < 0 || f.clientRTT > maxRTT:
		return cli.BadUsagef("--client-rtt %v: want 0s to %v", f.clientRTT, maxRTT)
	case !(f.synFlood >= 0 && f.synFlood <= maxFlood):
		return cli.BadUsagef("--syn-flood %v: want 0 to %v", f.synFlood, maxFlood)
	}
	if flags.Changed("lbs") {
		farm.LBs = f.lbs
	}
	if flags.Changed("client-rtt") {
		farm.ClientRTT = sim.Deterministic(f.clientRTT)
	}
	if flags.Changed("syn-flood") {
		farm.Flood = sim.Flood{Times: f.synFlood, Expires: floodExpires}
	}
	if flags.Changed("antagonists") {
		farm.Antagonists = sim.Antagonists{}
		if f.antagonists {
			farm.Antagonists = sim.Antagonists{Every: 10 * time.Second, Idle: 0.5, Least: 0.2, Most: 0.8}
		}
	}
	return f.window(flags, s)
}

// window sets which requests count.
func (f *simFarm) window(flags *pflag.FlagSet, s *study.Setting) error {
	bound := func(name, text string) (*study.Bound, error) {
		if !flags.Changed(name) {
			return nil, nil
		}
		b, err := study.ParseBound(text)
		if err != nil {
			return nil, cli.BadUsagef("--%s %q: %w", name, text, err)
		}
		return &b, nil
	}
	from, err := bound("count-from", f.from)
	if err != nil {
		return err
	}
	to, err := bound("count-to", f.to)
	if err != nil || from == nil && to == nil {
		return err
	}
	if err := s.Count(from, to); err != nil {
		return cli.BadUsagef("--count-from, --count-to: %w", err)
	}
	return nil
}
