package storms

import (
	"errors"
	"fmt"
	"io"
	"time"

	"proffer/lab/figures"
	"proffer/lab/tables"
	"proffer/lab/traffic"
)

// kill is one death.
type kill struct {
	At, Back time.Duration // of death, and of being there again; from the start of the requests
	LB       int
	Host     bool // else its daemon alone
}

func (k kill) victim(name string) string {
	if k.Host {
		return "the host of " + name
	}
	return "the daemon of " + name
}

// LBKillReport holds an LBKill's results.
type LBKillReport struct {
	experiment LBKill
	kills      []kill
	requests   traffic.Result
	idle       []traffic.Answer
	bulk       []traffic.Transfer
	carrying   int
	swallowed  uint64 // frames on the cables of dead hosts
}

// LBKillSummary is the output of --json.
type LBKillSummary struct {
	Kills        int     `json:"kills"`
	HostKills    int     `json:"host_kills"`
	Requests     int     `json:"requests"`
	Failed       int     `json:"failed"`    // resets, refusals, timeouts, anything but an answer
	Detect       float64 `json:"detect_ms"` // from a host's death to the withdrawal of its route
	Swallowed    uint64  `json:"swallowed"` // frames to and from dead hosts meanwhile
	LongestStall float64 `json:"longest_stall_ms"`
	IdleFlows    int     `json:"idle_flows"`
	IdleLost     int     `json:"idle_lost"`
	BulkFlows    int     `json:"bulk_flows"`
	BulkLost     int     `json:"bulk_lost"` // broken, or with a wrong byte
	BulkBytes    int64   `json:"bulk_bytes"`
	Carrying     int     `json:"carrying"` // LBs that steered packets since they came back
	LBs          int     `json:"lbs"`
	Servers      int     `json:"servers"`
	Seed         uint64  `json:"seed"`
}

// Summary sums the run up.
func (r *LBKillReport) Summary() LBKillSummary {
	e := r.experiment
	s := LBKillSummary{
		Kills: len(r.kills), Requests: len(r.requests.Rows), IdleFlows: len(r.idle), BulkFlows: len(r.bulk),
		Carrying: r.carrying, LBs: e.LBs, Servers: e.Servers, Seed: e.Seed,
		Detect: e.Detect.Seconds() * 1e3, Swallowed: r.swallowed,
		LongestStall: float64(r.requests.Longest().Latency()) / float64(time.Millisecond),
	}
	s.Failed = s.Requests - traffic.Count(r.requests.Rows, traffic.OK)
	for _, k := range r.kills {
		if k.Host {
			s.HostKills++
		}
	}
	for _, a := range r.idle {
		if a.Outcome != traffic.OK {
			s.IdleLost++
		}
	}
	for _, b := range r.bulk {
		s.BulkBytes += b.Bytes
		if b.Outcome != traffic.OK {
			s.BulkLost++
		}
	}
	return s
}

// JSON is the output of --json.
func (r *LBKillReport) JSON() any { return r.Summary() }

// Holds is the promise: no request fails, no flow is lost, no client waits long.
func (r *LBKillReport) Holds() error {
	s := r.Summary()
	var errs []error
	if s.Failed > 0 {
		errs = append(errs, fmt.Errorf("%d of %d requests failed, want 0: %s", s.Failed, s.Requests, r.firstFailure()))
	}
	if s.Detect > 0 && s.Swallowed == 0 {
		errs = append(errs, errors.New("no frame met a dead host: its route was withdrawn before it died"))
	}
	if s.Carrying < s.LBs {
		errs = append(errs, fmt.Errorf("%d of %d LBs carry traffic in the end, want all: some came back to nothing", s.Carrying, s.LBs))
	}
	if s.IdleLost > 0 {
		errs = append(errs, fmt.Errorf("%d of %d idle flows were lost, want 0", s.IdleLost, s.IdleFlows))
	}
	if s.BulkLost > 0 {
		errs = append(errs, fmt.Errorf("%d of %d bulk flows were lost, want 0: %s", s.BulkLost, s.BulkFlows, r.firstBroken()))
	}
	if longest := r.requests.Longest(); longest.Latency() > longestStall {
		errs = append(errs, fmt.Errorf("a request waited %v, want at most %v; it was due %v after the start",
			longest.Latency().Round(time.Millisecond), longestStall, longest.Intended.Round(time.Millisecond)))
	}
	return errors.Join(errs...)
}

func (r *LBKillReport) firstFailure() string {
	for _, row := range r.requests.Rows {
		if row.Outcome != traffic.OK {
			return fmt.Sprintf("%s at %v: %s", row.Outcome, row.Intended.Round(time.Millisecond), row.Cause)
		}
	}
	return ""
}

func (r *LBKillReport) firstBroken() string {
	for _, b := range r.bulk {
		if b.Outcome != traffic.OK {
			return fmt.Sprintf("%s after %d bytes: %s", b.Outcome, b.Bytes, b.Cause)
		}
	}
	return ""
}

// Print writes it as text.
func (r *LBKillReport) Print(w io.Writer) error {
	s := r.Summary()
	_, err := fmt.Fprintf(w, `%d LBs, %d servers, one LB killed every %v for %v, seed %d

kills        %d, of which %d hosts and %d daemons; %d LBs carry traffic in the end
detection    %v from a host's death to the withdrawal of its route; %d frames met a dead host
requests     %d, of which %d failed; the longest took %.0f ms
idle flows   %d, of which %d were lost
bulk flows   %d, of which %d were lost; %.1f GB moved, every byte checked
`, s.LBs, s.Servers, r.experiment.Every, r.experiment.For, s.Seed, s.Kills, s.HostKills, s.Kills-s.HostKills, s.Carrying,
		r.experiment.Detect, s.Swallowed, s.Requests, s.Failed, s.LongestStall, s.IdleFlows, s.IdleLost, s.BulkFlows, s.BulkLost, float64(s.BulkBytes)/1e9)
	return err
}

// Files are the figure, the requests, the kills and the long flows.
func (r *LBKillReport) Files() []tables.File {
	kills := tables.New("at_s", "back_s", "lb", "host")
	for _, k := range r.kills {
		kills.Add(k.At, k.Back, fmt.Sprintf("lb%d", k.LB+1), k.Host)
	}
	flows := tables.New("kind", "flow", "server", "outcome", "bytes")
	for _, a := range r.idle {
		flows.Add("idle", a.From, a.Server, a.Outcome)
	}
	for _, b := range r.bulk {
		flows.Add("bulk", b.From, b.Server, b.Outcome, b.Bytes)
	}
	return []tables.File{
		figures.File("lbkill", r.figure), traffic.File("lbkill-requests.csv", r.requests.Rows),
		kills.CSVFile("lbkill-kills.csv"), flows.CSVFile("lbkill-flows.csv"),
	}
}

// bin is the width of a figure's points in time.
const bin = 100 * time.Millisecond

// figure shows the slowest request of every tenth of a second, and the deaths.
func (r *LBKillReport) figure() (*figures.Figure, error) {
	slowest := map[int]float64{}
	for _, row := range r.requests.Rows {
		at := int(row.Intended / bin)
		slowest[at] = max(slowest[at], float64(row.Latency())/float64(time.Millisecond))
	}
	requests := figures.Curve{Name: "slowest request"}
	for at := range int(r.experiment.For/bin) + 1 {
		if ms, ok := slowest[at]; ok {
			requests.Points = append(requests.Points, figures.Point{X: (time.Duration(at) * bin).Seconds(), Y: ms})
		}
	}
	deaths := figures.Curve{Name: "an LB dies", Kind: figures.Published}
	for _, k := range r.kills {
		deaths.Points = append(deaths.Points, figures.Point{X: k.At.Seconds()})
	}
	return figures.NewChart(figures.Chart{
		Title:  fmt.Sprintf("Requests while LBs die, %d LBs, %v requests a second", r.experiment.LBs, r.experiment.Rate),
		X:      figures.Axis{Label: "time (s)", Column: "time_s"},
		Panels: []figures.Panel{{Y: figures.Axis{Label: "longest request in 100 ms (ms)", Column: "latency_ms"}, Curves: []figures.Curve{requests, deaths}}},
	})
}
