package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"proffer/api"
	"proffer/cmd/internal/cli"
)

// controls are the default sockets of the daemons.
var controls = []string{"/run/proffer/lb.sock", "/run/proffer/agent.sock", "/run/proffer/edge.sock", "/run/proffer/nf.sock"}

func newStatus() *cobra.Command {
	var socket string
	var asJSON, all bool
	cmd := &cobra.Command{
		Use:   "status [--control PATH] [--all] [--json]",
		Short: "Ask a running daemon for its services, load and counters",
		Long: `Asks the daemon on this host that has this control socket;
without --control, the first of load balancer, agent, edge load balancer and
datapath node that answers at its default socket.
Counters that are 0 are left out unless --all is given; docs/operate/counters.md explains
each counter.

--json prints one object: role (lb, agent, edge or node), node, locator, interface,
xdp (native or generic), pid, adopted (it took over an earlier daemon's state), reloads,
refused (files with a mistake), not_reloaded (why the last file was refused, until one is
applied; the first of the problems, too), flows (at the last sweep), services, servers,
edge, counters;
reports (answered, refused, limited: requests for an agent's loads); and lines of text in
no_next_hop, advice, bad_tags and problems; log (lost: lines of the daemon's log, waiting,
stalled_s: since its reader took a line, error). Fields that a daemon does not have are
left out; a name that ends in _s is in seconds.

services is an array of name, vip, mode. An agent's have listener and load: measure,
instead (why it is not the configured one), threshold, asking, expected, open, cores, busy,
idle, answers, service_time (mean_s, error, answers), work (unread, early, run, blocked,
out) and word (source, from, of, busy, workers, age_s, trouble: the application's own).
An LB's have affinity and allow, where the file does, servers (name, state, weight, draining: the weight is 0, connections: those of
the service that the LB knows) and, in modes that choose among all servers, learning:
counting (which flows), conversion, silent_s, gain, noise, wrong_counts, and servers (name,
established, embryonic, samples, mean_s, filter, variance, weight, why).

servers has each server of an LB once, over all services: name, state (answers or down),
since_s, silent_s, doubt, pause_s, probes, offered, repeated, answered, unreachable. The
state of a service's server may be unknown, too.

edge has cores (node, core, state, load, measured_load, weight, packets, flows, virtual:
at_ns, busy_ns, stayed_ns, served, dropped) and costs (node, service, nanoseconds, from);
of an edge LB also balancer, wishes, replica (running, starts, failures, error),
refused_reports and talkers (protocol, client, world, node, core, service,
packets_per_second, bits_per_second, share); of a node patterns (service, pattern,
packets).`,
		Args: cli.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, cancel := context.WithTimeout(cmd.Context(), 5*time.Second)
			defer cancel()
			s, err := ask(ctx, socket, controls)
			if err != nil {
				return err
			}
			if asJSON {
				enc := json.NewEncoder(cmd.OutOrStdout())
				enc.SetIndent("", "  ")
				return enc.Encode(s)
			}
			return printStatus(cmd.OutOrStdout(), s, all)
		},
	}
	cmd.Flags().StringVar(&socket, "control", "", "control socket `PATH` of the daemon (default "+strings.Join(controls, " or ")+")")
	cmd.Flags().BoolVar(&all, "all", false, "show counters that are 0 too")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON object")
	return cmd
}

// ask asks the daemon at socket, or without a socket the first of defaults that
// answers.
func ask(ctx context.Context, socket string, defaults []string) (api.Status, error) {
	if socket != "" {
		return api.Ask(ctx, socket)
	}
	var errs []error
	for _, path := range defaults {
		s, err := api.Ask(ctx, path)
		if err == nil {
			return s, nil
		}
		if !errors.Is(err, os.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	if len(errs) == 0 {
		return api.Status{}, fmt.Errorf("no daemon answers at %s: is a daemon running? Give the `control` path of its configuration with --control",
			strings.Join(defaults, " or "))
	}
	return api.Status{}, errors.Join(errs...)
}

// printStatus writes a status for a reader.
func printStatus(w io.Writer, s api.Status, all bool) error {
	if s.NotReloaded != "" {
		fmt.Fprintf(w, "problem: %s\n", s.NotReloaded)
	}
	if s.Edge != nil {
		fmt.Fprintf(w, "%s %s  on %s, pid %d, %d flows\n\n", s.Role, s.Node, s.Interface, s.PID, s.Flows)
	} else {
		fmt.Fprintf(w, "%s %s  %s on %s, XDP %s, pid %d, %d flows\n\n",
			s.Role, s.Node, s.Locator, s.Interface, s.XDP, s.PID, s.Flows)
	}
	for _, advice := range s.Advice {
		fmt.Fprintf(w, "advice: %s\n", advice)
	}
	for _, sender := range s.BadTags {
		fmt.Fprintf(w, "no valid tag from %s\n", sender)
	}
	if r := s.Reports; r != nil && r.Refused+r.Limited > 0 {
		fmt.Fprintf(w, "requests for the load: %d answered, %d without a valid tag or malformed, %d above the most a second\n", r.Answered, r.Refused, r.Limited)
	}
	for _, addr := range s.NoNextHop {
		fmt.Fprintf(w, "no next hop to %s\n", addr)
	}
	for _, p := range s.Problems {
		if p != s.NotReloaded {
			fmt.Fprintf(w, "problem: %s\n", p)
		}
	}
	if l := s.Log; l != nil && l.Lost > 0 {
		fmt.Fprintf(w, "log: %d lines were lost\n", l.Lost)
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, svc := range s.Services {
		fmt.Fprintf(t, "service\t%s\t%s\t%s\t%s\n", svc.Name, svc.VIP, svc.Mode, loadText(svc.Load))
		if svc.Listener != "" {
			fmt.Fprintf(t, "\tlistener\t%s\n", svc.Listener)
		}
		if svc.Affinity != "" {
			fmt.Fprintf(t, "\taffinity\t%s\n", svc.Affinity)
		}
		if len(svc.Allow) > 0 {
			fmt.Fprintf(t, "\tallow\t%s\n", strings.Join(svc.Allow, " "))
		}
		if svc.Load != nil {
			fmt.Fprintf(t, "\tspeed\t%s\n", speedText(svc.Load))
		}
		if svc.Learning != nil {
			printLearning(t, svc.Learning)
		}
		printServers(t, svc.Servers)
	}
	printHealth(t, s.Servers)
	printCores(t, s.Edge)
	fmt.Fprintln(t)
	for _, name := range slices.Sorted(maps.Keys(s.Counters)) {
		if n := s.Counters[name]; n > 0 || all {
			fmt.Fprintf(t, "%s\t%d\n", name, n)
		}
	}
	return t.Flush()
}

// printCores writes a line a core.
func printCores(w io.Writer, e *api.EdgeStatus) {
	if e == nil {
		return
	}
	if e.Balancer != "" {
		fmt.Fprintf(w, "balancer %s, another node was wanted %d times\n", e.Balancer, e.Wishes)
	}
	if r := e.Replica; r != nil {
		fmt.Fprintln(w, replicaText(r))
	}
	for _, c := range e.Cores {
		text := fmt.Sprintf("core\t%s/%d\t%d packets", c.Node, c.Core, c.Packets)
		if c.Load != nil && c.Weight != nil && c.Flows != nil {
			text += fmt.Sprintf("\t%s\t%d flows begun\tload %.1f %%\t%s\tweight %.3f", c.State, *c.Flows, 100**c.Load, measuredText(c.Measured), *c.Weight)
		}
		if v := c.Virtual; v != nil {
			text += fmt.Sprintf("\tvirtual: served %d, dropped %d, %v a packet on average", v.Served, v.Dropped, time.Duration(v.Stayed/max(1, int64(v.Served))))
		}
		fmt.Fprintln(w, text)
	}
	for _, c := range e.Costs {
		fmt.Fprintf(w, "cost\t%s\tservice %d\t%.3g µs a packet\t%s\n", c.Node, c.Service, c.Nanoseconds/1000, c.From)
	}
	for _, p := range e.Patterns {
		fmt.Fprintf(w, "pattern\t%s\tservice %d\t%d packets\n", p.Pattern, p.Service, p.Packets)
	}
	if e.RefusedReports > 0 {
		fmt.Fprintf(w, "reports of nodes without a valid tag or malformed: %d\n", e.RefusedReports)
	}
	for _, f := range e.Talkers {
		fmt.Fprintf(w, "talker %s %s with %s at %s/%d, service %d: %.0f packets/s, %.3g Mbit/s, %.0f %% of all\n",
			f.Protocol, f.Client, f.World, f.Node, f.Core, f.Service, f.PacketsPerSecond, f.BitsPerSecond/1e6, 100*f.Share)
	}
}

func replicaText(r *api.ReplicaStatus) string {
	text := fmt.Sprintf("command that starts a node: run %d times, %d failed", r.Starts, r.Failures)
	if r.Error != "" {
		text += ", the last one: " + r.Error
	}
	if r.Running {
		text += "; it runs"
	}
	return text
}

func measuredText(load *float64) string {
	if load == nil {
		return "not measured"
	}
	return fmt.Sprintf("measured %.1f %%", 100**load)
}

// printLearning writes a line a server.
func printLearning(w io.Writer, l *api.LearningStatus) {
	text := "counting " + l.Counting
	if l.Conversion != nil {
		text += fmt.Sprintf(", %.0f %% of new flows come to life", 100**l.Conversion)
	}
	if l.Silent > 0 {
		text += fmt.Sprintf(", silent after %.0f s", l.Silent)
	}
	fmt.Fprintf(w, "\tlearning\t%s, gain %.3g, noise %.3g\n", text, l.Gain, l.Noise)
	for _, s := range l.Servers {
		mean := "none"
		if s.Mean != nil {
			mean = fmt.Sprintf("%.3f s", *s.Mean)
		}
		fmt.Fprintf(w, "\t%s\testablished %d, embryonic %d\tmean %s of %d, filter %.3f ± %.3f\tweight %.4f: %s\n",
			s.Name, s.Established, s.Embryonic, mean, s.Samples, s.Filter, math.Sqrt(s.Variance), s.Weight, s.Why)
	}
}

// printServers writes a line for each server of a service.
func printServers(w io.Writer, servers []api.ServerStatus) {
	for _, s := range servers {
		text := fmt.Sprintf("weight %d", s.Weight)
		if s.Draining {
			text += ", draining"
		}
		if s.Connections != nil {
			text += fmt.Sprintf(", connections %d", *s.Connections)
		}
		if s.State == "down" {
			text += ", down"
		}
		fmt.Fprintf(w, "\t%s\t%s\n", s.Name, text)
	}
}

// printHealth writes how each server answers, over all services.
func printHealth(w io.Writer, servers []api.HealthStatus) {
	for _, s := range servers {
		text := fmt.Sprintf("%s since %.1f s", s.State, s.Since)
		if s.State == "down" {
			text += fmt.Sprintf(", %d probes, one in %.0f s", s.Probes, s.Pause)
		}
		if s.State == "down" || s.Doubt >= 1 {
			text += fmt.Sprintf(", no answer for %.1f s", s.Silent)
		}
		fmt.Fprintf(w, "server\t%s\t%s\toffered %d, repeated %d, answered %d, unreachable %d\n",
			s.Name, text, s.Offered, s.Repeated, s.Answered, s.Unreachable)
	}
}

func loadText(l *api.LoadStatus) string {
	if l == nil {
		return ""
	}
	text := fmt.Sprintf("threshold %d, asking %d, expected %d, open %d", l.Threshold, l.Asking, l.Expected, l.Open)
	if w := l.Work; w != nil {
		text += fmt.Sprintf(", unread %d, run %d, blocked %d, out %d", w.Unread, w.Run, w.Blocked, w.Out)
	}
	if l.Word == nil {
		return text
	}
	return text + ", " + wordText(l.Word)
}

// speedText has a service's cores and service time: "0.5 cores, busy 1, idle 0, answers 40,
// service time 0.025 s ± 3 %".
func speedText(l *api.LoadStatus) string {
	text := fmt.Sprintf("%.3g cores", l.Cores)
	if l.Busy != nil && l.Idle != nil {
		text += fmt.Sprintf(", busy %d, idle %.3g", *l.Busy, *l.Idle)
	}
	text += fmt.Sprintf(", answers %d", l.Answers)
	if s := l.ServiceTime; s != nil {
		text += fmt.Sprintf(", service time %.3g s ± %.0f %%", s.Mean, 100*s.Error)
	}
	return text
}

// wordText is an application's own word: "apache busy 3 of 25, 4 ms old".
func wordText(w *api.WordStatus) string {
	text := w.Source
	if w.Age >= 0 {
		text += fmt.Sprintf(" busy %d", w.Busy)
		if w.Workers > 0 {
			text += fmt.Sprintf(" of %d", w.Workers)
		}
		text += fmt.Sprintf(", %.3f s old", w.Age)
	}
	if w.Trouble != "" {
		text += ": " + w.Trouble
	}
	return text
}
