package peers

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"proffer/lab/farmrun"
	"proffer/lab/testbed"
	"proffer/lab/traffic"
)

// task is the work of every peer.
type task struct {
	name  string
	do    func(*contest, context.Context) (done, error)
	costs bool // its cost is measured
}

// The tasks by name: connections of one request each; requests on connections
// that stay open; one direction and the other of bulk; and, open loop, so few
// connections that nothing is busy.
const (
	connecting  = "connections"
	requesting  = "requests"
	downloading = "download"
	uploading   = "upload"
	waiting     = "latency"
)

func tasks() []task {
	return []task{
		{connecting, (*contest).connect, true},
		{requesting, (*contest).request, true},
		{downloading, (*contest).download, true},
		{uploading, (*contest).upload, true},
		{waiting, (*contest).wait, false},
	}
}

// done is the outcome of a task once.
type done struct {
	task   string
	work   float64 // connections, requests or bytes, complete
	took   time.Duration
	errors int
	cost   cost

	latencies []float64     // µs, of the connections that were answered
	late      time.Duration // 99th percentile of how late the client sent them
}

// latencyRate is of the open loop, connections a second.
const latencyRate = 500

// How many clients wrk is, in one thread.
const (
	forRequests = "-c32"
	forBulk     = "-c4"
)

func (c *contest) connect(ctx context.Context) (done, error) {
	sum, err := c.wrk(ctx, "/", forRequests, "--header", "Connection: close")
	return sum.done(sum.requests), err
}

func (c *contest) request(ctx context.Context) (done, error) {
	sum, err := c.wrk(ctx, "/", forRequests)
	return sum.done(sum.requests), err
}

func (c *contest) download(ctx context.Context) (done, error) {
	sum, err := c.wrk(ctx, "/"+bulkFile, forBulk)
	return sum.done(sum.bytes), err
}

// summary is wrk's result.
type summary struct {
	requests, bytes float64
	took            time.Duration
	errors          int
}

func (s summary) done(work float64) done {
	return done{work: work, took: s.took, errors: s.errors}
}

// tell is a script for wrk: its own report rounds.
const tell = `done = function(sum)
	local e = sum.errors
	print(string.format("summary %d %d %d %d", sum.requests, sum.bytes, sum.duration,
		e.connect + e.read + e.write + e.status + e.timeout))
end
`

// wrk asks for a path as often as it goes, and waits ten times its usual two seconds:
// a slow answer is no error. It knows whole seconds only, and ends in good order when
// interrupted.
func (c *contest) wrk(ctx context.Context, path string, args ...string) (summary, error) {
	script := filepath.Join(c.bed.Dir, "tell.lua")
	if err := os.WriteFile(script, []byte(tell), 0o644); err != nil {
		return summary{}, fmt.Errorf("write wrk's script: %w", err)
	}
	args = append(args, "-t1", "-d1h", "--timeout", "20s", "-s", script, urlOf(c.bed.VIP, path))
	p, err := c.begin(ctx, "wrk", args...)
	if err != nil {
		return summary{}, err
	}
	defer time.AfterFunc(c.For, func() { _ = p.Signal(os.Interrupt) }).Stop() // it fails for one that has ended
	if err := p.end(); err != nil {
		return summary{}, err
	}
	return parseSummary(p.stdout.String())
}

func parseSummary(out string) (s summary, err error) {
	var us int64
	for line := range bytes.Lines([]byte(out)) {
		if n, _ := fmt.Sscanf(string(line), "summary %f %f %d %d", &s.requests, &s.bytes, &us, &s.errors); n == 4 {
			s.took = time.Duration(us) * time.Microsecond
			return s, nil
		}
	}
	return s, fmt.Errorf("wrk printed %q, and no summary", out)
}

// upload sends zeros on one connection for as long as it may: curl calls that a
// timeout (28). The server reads them and throws them away.
func (c *contest) upload(ctx context.Context) (d done, err error) {
	const timeout = 28
	p, err := c.begin(ctx, "curl", "--silent", "--show-error", "--globoff", "--max-time", fmt.Sprint(c.For.Seconds()),
		"--header", "Expect:", "--upload-file", "/dev/zero", "--output", os.DevNull,
		"--write-out", "%{size_upload} %{time_total}", urlOf(c.bed.VIP, "/upload"))
	if err != nil {
		return d, err
	}
	var exit *exec.ExitError
	if err := p.end(); !errors.As(err, &exit) || exit.ExitCode() != timeout {
		return d, fmt.Errorf("it ended before its time: %w", err)
	}
	var seconds float64
	if _, err := fmt.Sscanf(p.stdout.String(), "%f %f", &d.work, &seconds); err != nil {
		return d, fmt.Errorf("curl printed %q: %w", &p.stdout, err)
	}
	d.took = time.Duration(seconds * float64(time.Second))
	return d, nil
}

// wait opens connections at a steady rate, one request each, and takes the time
// from when each was due to when its answer was there. Clients and servers are on
// CPUs of their own.
func (c *contest) wait(ctx context.Context) (d done, err error) {
	n := int(latencyRate * c.For.Seconds())
	ends := c.ends[:n]
	c.ends = c.ends[n:]
	client := traffic.Client{To: netip.AddrPortFrom(c.bed.VIP, testbed.Port), Enter: c.bed.Client.Enter}
	var run traffic.Result
	err = farmrun.Apart(c.servers, func() (err error) {
		run, err = client.Run(ctx, traffic.Steady(latencyRate, c.For, ends...))
		return err
	})
	if err != nil {
		return d, err
	}
	d.took, d.late = c.For, run.Schedule.P99
	for _, row := range run.Rows {
		if row.Outcome == traffic.OK {
			d.work++
			d.latencies = append(d.latencies, float64(row.Latency())/float64(time.Microsecond))
		}
	}
	d.errors = n - int(d.work)
	return d, nil
}

func urlOf(host netip.Addr, path string) string { return fmt.Sprintf("http://[%s]%s", host, path) }

// command is a program at the client.
type command struct {
	*testbed.Process
	stdout, stderr bytes.Buffer
	ctx            context.Context
	cancel         context.CancelFunc
}

// begin starts a program that ends by itself, or is ended some time later.
func (c *contest) begin(ctx context.Context, name string, args ...string) (p *command, err error) {
	p = &command{}
	p.ctx, p.cancel = context.WithTimeoutCause(ctx, c.For+farmrun.ReadyWithin, fmt.Errorf("%s did not end %v after its time", name, farmrun.ReadyWithin))
	cmd := exec.CommandContext(p.ctx, name, args...)
	cmd.Stdout, cmd.Stderr = &p.stdout, &p.stderr
	if p.Process, err = c.bed.Client.StartCommand(cmd); err != nil {
		p.cancel()
	}
	return p, err
}

// end waits for the program's end, and returns its complaint.
func (p *command) end() error {
	defer p.cancel()
	if err := p.Wait(); err != nil {
		return errors.Join(context.Cause(p.ctx), fmt.Errorf("%s: %w: %s", p.Name, err, bytes.TrimSpace(p.stderr.Bytes())))
	}
	return nil
}
