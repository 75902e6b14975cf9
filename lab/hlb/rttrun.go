package hlb

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"strings"
	"time"

	"proffer/api"
	"proffer/lab/farmrun"
	"proffer/lab/testbed"
	"proffer/lab/traffic"
	"proffer/lab/traffic/raw"
	"proffer/topo"
)

// rttRun is a run, with daemons and servers of its own.
type rttRun struct {
	RTT
	way      rttWay
	bed      *testbed.Bed
	requests []traffic.Request

	rows     []traffic.Row
	forged   raw.Sent
	counting string  // which flows count at the LBs, at the end
	ratio    float64 // of the faster servers' weights to the others'
}

func (r *rttRun) run(ctx context.Context) (err error) {
	servers, err := farmrun.Serve(r.bed, r.kinds().Machines()...)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, servers.Close()) }()
	farm, err := farmrun.Start(ctx, r.bed, farmrun.Settings{
		Policy: topo.Policy{Dispatch: r.way.dispatch}, NoAgents: true, Workers: rttWorkers, Cores: r.Cores, Programs: r.Programs,
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, farm.Stop()) }()
	if err := farm.Resolved(ctx); err != nil {
		return err
	}
	late, err := r.ask(ctx, farm)
	if err != nil {
		return err
	}
	return errors.Join(late, farmrun.ServedOnce(servers.Books(), r.rows))
}

// ask sends the requests, beside the flood if there is one, and then reads the weights.
func (r *rttRun) ask(ctx context.Context, farm *farmrun.Farm) (late, err error) {
	flooding, stop := context.WithCancel(ctx)
	flooded := make(chan error, 1)
	go func() { flooded <- r.flood(flooding) }()
	client := traffic.Client{To: netip.AddrPortFrom(r.bed.VIP, testbed.Port), Enter: r.bed.Client.Enter, Timeout: time.Minute}
	result, err := client.Run(ctx, r.requests)
	if err == nil {
		err = r.read(ctx, farm)
	}
	stop()
	r.rows = result.Rows
	return result.Schedule.Kept(), errors.Join(err, <-flooded)
}

// flood sends forged SYNs until the context ends, in a run that has them.
func (r *rttRun) flood(ctx context.Context) (err error) {
	if !r.way.flooded {
		return nil
	}
	r.forged, err = raw.Flood{
		Interface: "eth0", To: netip.AddrPortFrom(r.bed.VIP, testbed.Port), Clients: testbed.ClientNet(),
		Rate: r.Flood * r.rate(), For: time.Hour, Seed: r.Seed, Enter: r.bed.Client.Enter,
	}.Run(ctx)
	if errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

// read takes the weights and which flows count from the LBs.
func (r *rttRun) read(ctx context.Context, farm *farmrun.Farm) error {
	var counting []string
	var fast, slow float64
	kinds := r.kinds()
	for _, lb := range r.bed.LBs {
		learning, err := farm.Learning(ctx, lb)
		if err != nil {
			return err
		}
		counting = append(counting, learning.Counting)
		for i, s := range r.bed.Servers {
			weight := weightOf(learning, s.Name)
			if kinds.Faster(i) {
				fast += weight / float64(kinds.Fast)
			} else {
				slow += weight / float64(kinds.Servers-kinds.Fast)
			}
		}
	}
	slices.Sort(counting)
	r.counting, r.ratio = strings.Join(slices.Compact(counting), ", "), fast/slow
	return nil
}

func weightOf(l *api.LearningStatus, server string) float64 {
	for _, s := range l.Servers {
		if s.Name == server {
			return s.Weight
		}
	}
	return 0
}
