// Package api asks a running daemon for its status, and serves it: HTTP with JSON on a
// unix socket, GET /status.
package api

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/prometheus/common/expfmt"
	"golang.org/x/sys/unix"

	"proffer/foreign"
	"proffer/topo"
)

// Status is a daemon's answer.
type Status struct {
	Role      string `json:"role"` // "lb", "agent", "edge" or "nf"
	Node      string `json:"node"`
	Locator   string `json:"locator"`
	Interface string `json:"interface"`
	XDP       string `json:"xdp"` // "native" or "generic"
	PID       int    `json:"pid"`
	Adopted   bool   `json:"adopted"` // took over an earlier daemon's state
	Reloads   uint64 `json:"reloads"` // configurations applied since the start
	Refused   uint64 `json:"refused"` // … and those that had a mistake
	// NotReloaded is why the last reload was refused, which is the first of the problems, too; empty: it was applied.
	NotReloaded string            `json:"not_reloaded,omitempty"`
	Flows       uint64            `json:"flows"`                 // entries in the flow table at the last sweep
	NoNextHop   []string          `json:"no_next_hop,omitempty"` // addresses that packets cannot reach, with reasons
	Advice      []string          `json:"advice,omitempty"`      // settings of the host that lose packets
	BadTags     []string          `json:"bad_tags,omitempty"`    // senders of signals without a valid tag
	Reports     *ReportsStatus    `json:"reports,omitempty"`     // of an agent's loads, to LBs
	Services    []ServiceStatus   `json:"services"`
	Servers     []HealthStatus    `json:"servers,omitempty"`  // how the servers of an LB answer, each once
	Edge        *EdgeStatus       `json:"edge,omitempty"`     // of an edge LB or a datapath node
	Problems    []string          `json:"problems,omitempty"` // why packets pass the programs by, a node is not as its LB's file has it, or the daemon cannot write
	Log         *LogStatus        `json:"log,omitempty"`
	Counters    map[string]uint64 `json:"counters"`
}

// LogStatus is how the daemon's log gets on.
type LogStatus struct {
	Lost    uint64  `json:"lost"`            // lines, since the start
	Waiting int     `json:"waiting"`         // lines, for the log's reader
	Stalled float64 `json:"stalled_s"`       // since the reader took a line; 0: none waits
	Error   string  `json:"error,omitempty"` // why the last line could not be written
}

// ReportsStatus counts the requests of LBs for a server's load.
type ReportsStatus struct {
	Answered uint64 `json:"answered"`
	Refused  uint64 `json:"refused"` // malformed, or without a valid tag
	Limited  uint64 `json:"limited"` // above the most a second
}

// ServiceStatus is a service of a daemon; an LB leaves the load out.
type ServiceStatus struct {
	Name string `json:"name"`
	VIP  string `json:"vip"` // address and port
	Mode string `json:"mode"`
	// Affinity is what ties new connections of an LB's service to a server, and for how long; Allow the clients that it serves.
	Affinity string   `json:"affinity,omitempty"`
	Allow    []string `json:"allow,omitempty"`
	// Listener names the processes that take its connections; an LB leaves it out.
	Listener string      `json:"listener,omitempty"`
	Load     *LoadStatus `json:"load,omitempty"`
	// Learning has the servers as an LB has learned them.
	Learning *LearningStatus `json:"learning,omitempty"`
	// Servers has those of an LB's service.
	Servers []ServerStatus `json:"servers,omitempty"`
}

// ServiceOf is a load balancer's service as its configuration states it.
func ServiceOf(s *topo.Service) ServiceStatus {
	status := ServiceStatus{Name: s.Name, VIP: s.VIP.String(), Mode: s.Mode()}
	if s.Affinity != topo.NoAffinity {
		status.Affinity = fmt.Sprintf("%s for %s", s.Affinity, s.AffinityTime)
	}
	for _, p := range s.Allow {
		status.Allow = append(status.Allow, p.String())
	}
	return status
}

// ServerStatus is a server of a service. How it answers, which is over all services, Status.Servers has.
type ServerStatus struct {
	Name        string  `json:"name"`
	State       string  `json:"state"` // as HealthStatus has it, or "unknown"
	Weight      int     `json:"weight"`
	Draining    bool    `json:"draining"`              // its weight is 0: it gets no new flows
	Connections *uint32 `json:"connections,omitempty"` // of the service, which the LB knows there; none: the mode has no entries
}

// HealthStatus is how a server answers, over all services of the LB.
type HealthStatus struct {
	Name        string  `json:"name"`
	State       string  `json:"state"`             // "answers" or "down"
	Since       float64 `json:"since_s"`           // that the state is so
	Silent      float64 `json:"silent_s"`          // since its last answer, or since it is known
	Doubt       float64 `json:"doubt"`             // evidence that it answers nothing
	Pause       float64 `json:"pause_s,omitempty"` // of a server that is down: between two probes
	Probes      uint64  `json:"probes,omitempty"`  // … and those that it had
	Offered     uint32  `json:"offered"`           // new connections that were offered to it first
	Repeated    uint32  `json:"repeated"`          // SYNs of such that came again
	Answered    uint32  `json:"answered"`          // new connections that it answered, or passed on
	Unreachable uint32  `json:"unreachable"`       // ICMP errors about packets to it
}

// LearningStatus has the servers of a service as an LB has learned them.
type LearningStatus struct {
	Counting   string          `json:"counting"`             // which flows are a server's occupancy
	Conversion *float64        `json:"conversion,omitempty"` // part of the latest flows that came to life
	Silent     float64         `json:"silent_s"`             // a flow without packets counts so long; 0: as long as its entry lives
	Gain       float64         `json:"gain"`                 // Kalman gain of the last step
	Noise      float64         `json:"noise"`                // variance of a measurement
	Wrong      uint64          `json:"wrong_counts"`         // of flows at a server of this LB, which recounts have set right
	Servers    []LearnedStatus `json:"servers"`
}

// LearnedStatus is a server of a service that learns.
type LearnedStatus struct {
	Name        string   `json:"name"`
	Established uint32   `json:"established"`
	Embryonic   uint32   `json:"embryonic"`
	Samples     int      `json:"samples"`          // durations that the mean is of
	Mean        *float64 `json:"mean_s,omitempty"` // of flows
	Filter      float64  `json:"filter"`           // the same, smoothed, beside the average of all servers
	Variance    float64  `json:"variance"`         // of that
	Weight      float64  `json:"weight"`
	Why         string   `json:"why"`
}

// LoadStatus is a service's load as its agent measures it.
type LoadStatus struct {
	Measure   string   `json:"measure"`           // in use
	Instead   string   `json:"instead,omitempty"` // why it is not the configured measure
	Threshold uint32   `json:"threshold"`
	Asking    uint32   `json:"asking"`
	Expected  uint32   `json:"expected"`
	Open      uint32   `json:"open"`
	Cores     float64  `json:"cores"`          // that its processes may use
	Busy      *uint32  `json:"busy,omitempty"` // by the measure; none: not known, nor Idle
	Idle      *float64 `json:"idle,omitempty"` // cores
	Answers   uint64   `json:"answers"`        // since the agent's tables began
	// ServiceTime is how long a request takes that does not queue, once the agent has learned it.
	ServiceTime *ServiceTimeStatus `json:"service_time,omitempty"`
	Work        *WorkStatus        `json:"work,omitempty"`
	// Word is the application's own, where that is the load.
	Word *WordStatus `json:"word,omitempty"`
}

// ServiceTimeStatus is a mean, and how sure it is.
type ServiceTimeStatus struct {
	Mean    float64 `json:"mean_s"`
	Error   float64 `json:"error"`   // relative standard error
	Answers float64 `json:"answers"` // that it rests on
}

// WordStatus is the last word of an application about its load.
type WordStatus struct {
	Source  string  `json:"source"`
	From    string  `json:"from"`
	Of      string  `json:"of,omitempty"`
	Busy    uint32  `json:"busy"`
	Workers uint32  `json:"workers,omitempty"` // that the application has
	Age     float64 `json:"age_s"`             // since it was true; negative: there was none
	Trouble string  `json:"trouble,omitempty"` // why it is no load now
}

// WorkStatus has the parts of the load measure work, but for the listener's queue.
type WorkStatus struct {
	Unread  uint32 `json:"unread"`
	Early   uint32 `json:"early"` // of the unread: those in the listener's queue
	Run     uint32 `json:"run"`
	Blocked uint32 `json:"blocked"`
	Out     uint32 `json:"out"`
}

// Listen takes the control socket. The socket of a killed daemon is replaced, the
// socket of a running daemon is not.
func Listen(path string) (net.Listener, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, fmt.Errorf("make the folder of control socket %s: %w", path, err)
	}
	conn, err := net.Dial("unix", path)
	if err == nil {
		conn.Close()
	}
	if err == nil || errors.Is(err, unix.EAGAIN) { // more are waiting for its answer than it lets wait
		return nil, fmt.Errorf("control socket %s: another daemon answers there; stop it, or set `control` to another path", path)
	}
	if info, err := os.Lstat(path); err == nil && info.Mode()&os.ModeSocket != 0 {
		if err := os.Remove(path); err != nil {
			return nil, fmt.Errorf("remove the stale control socket %s: %w", path, err)
		}
	}
	l, err := net.Listen("unix", path)
	if err != nil {
		return nil, fmt.Errorf("control socket %s: %w", path, err)
	}
	if err := foreign.Permit(l.(*net.UnixListener), 0o660); err != nil {
		l.Close()
		return nil, fmt.Errorf("control socket %s: %w", path, err)
	}
	return l, nil
}

// lastAnswers is the longest time that answers in progress delay the end of Serve.
const lastAnswers = time.Second

// Serve answers on l until ctx ends and the answers in progress are complete.
func Serve(ctx context.Context, l net.Listener, status func() (Status, error)) error {
	bound := &crowd{Listener: l}
	server := &http.Server{
		Handler: handler(status), ConnState: bound.note, MaxHeaderBytes: 16 << 10,
		ReadTimeout: 5 * time.Second, WriteTimeout: 30 * time.Second, IdleTimeout: 30 * time.Second,
	}
	served := make(chan error, 1)
	go func() { served <- server.Serve(bound) }()
	select {
	case err := <-served:
		return fmt.Errorf("answer on the control socket: %w", err)
	case <-ctx.Done():
	}
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastAnswers)
	defer cancel()
	if server.Shutdown(last) != nil {
		server.Close() // the client is slow
	}
	<-served
	return nil
}

// handler serves a status with texts that a terminal may show: names of processes and cgroups, the words
// of endpoints and the like come from outside.
func handler(status func() (Status, error)) http.Handler {
	printable := func() (Status, error) {
		s, err := status()
		return foreign.Clean(s), err
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /status", func(w http.ResponseWriter, _ *http.Request) {
		s, err := printable()
		if err != nil {
			http.Error(w, foreign.Lines(err.Error()), http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		json.NewEncoder(w).Encode(s) // fails only if the client has gone
	})
	mux.HandleFunc("GET /metrics", func(w http.ResponseWriter, _ *http.Request) {
		s, err := printable()
		if err != nil {
			http.Error(w, foreign.Lines(err.Error()), http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", string(expfmt.NewFormat(expfmt.TypeTextPlain)))
		writeMetrics(w, &s) // fails only if the client has gone
	})
	return mux
}

// longestStatus bounds an answer: the socket may be another program's.
const longestStatus = 64 << 20

// Ask asks the daemon with the control socket at path.
func Ask(ctx context.Context, path string) (Status, error) {
	var s Status
	client := http.Client{Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", path)
		},
		DisableKeepAlives: true,
	}}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://proffer/status", nil)
	if err != nil {
		return s, fmt.Errorf("ask %s: %w", path, err)
	}
	resp, err := client.Do(req)
	if err != nil {
		return s, fmt.Errorf("no daemon answers at %s: is it running, and is this its `control` path? %w", path, errors.Unwrap(err))
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		why, _ := io.ReadAll(io.LimitReader(resp.Body, 1<<10))
		return s, fmt.Errorf("ask %s: %s: %s", path, foreign.Printable(resp.Status), foreign.Printable(string(bytes.TrimSpace(why))))
	}
	if err := json.NewDecoder(io.LimitReader(resp.Body, longestStatus)).Decode(&s); err != nil {
		return s, fmt.Errorf("ask %s: %w", path, err)
	}
	return foreign.Clean(s), nil
}
