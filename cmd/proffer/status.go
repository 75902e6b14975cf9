package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
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
var controls = []string{"/run/proffer/lb.sock", "/run/proffer/agent.sock"}

func newStatus() *cobra.Command {
	var socket string
	var asJSON, all bool
	cmd := &cobra.Command{
		Use:   "status [--control PATH] [--all] [--json]",
		Short: "Ask a running daemon for its services, load and counters",
		Long: `Asks the daemon on this host that has this control socket;
without --control, the load balancer or else the agent at their default sockets.
Counters that are 0 are left out unless --all is given; docs/counters.md explains
each counter.`,
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
	fmt.Fprintf(w, "%s %s  %s on %s, XDP %s, pid %d, %d flows\n\n",
		s.Role, s.Node, s.Locator, s.Interface, s.XDP, s.PID, s.Flows)
	for _, advice := range s.Advice {
		fmt.Fprintf(w, "advice: %s\n", advice)
	}
	for _, sender := range s.BadTags {
		fmt.Fprintf(w, "no valid tag from %s\n", sender)
	}
	for _, addr := range s.NoNextHop {
		fmt.Fprintf(w, "no next hop to %s\n", addr)
	}
	for _, p := range s.Problems {
		fmt.Fprintf(w, "problem: %s\n", p)
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, svc := range s.Services {
		fmt.Fprintf(t, "service\t%s\t%s\t%s\t%s\n", svc.Name, svc.VIP, svc.Mode, loadText(svc.Load))
		if svc.Listener != "" {
			fmt.Fprintf(t, "\tlistener\t%s\n", svc.Listener)
		}
		if svc.Load != nil {
			fmt.Fprintf(t, "\tspeed\t%s\n", speedText(svc.Load))
		}
	}
	fmt.Fprintln(t)
	for _, name := range slices.Sorted(maps.Keys(s.Counters)) {
		if n := s.Counters[name]; n > 0 || all {
			fmt.Fprintf(t, "%s\t%d\n", name, n)
		}
	}
	return t.Flush()
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
