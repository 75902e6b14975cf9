package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"runtime"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"proffer/api"
	"proffer/cmd/internal/cli"
	"proffer/config"
	"proffer/control"
	"proffer/dataplane"
	"proffer/loadpage"
	"proffer/topo"
)

func newAgent() *cobra.Command {
	var path string
	cmd := &cobra.Command{
		Use:   "agent --config FILE",
		Short: "Run the agent of this server, in the foreground",
		Long: `Runs the agent until SIGTERM or Ctrl-C, then detaches it. It decides on the
offers for the configured services by their local load, hands the accepted
packets to this host's TCP, and tells the load balancer. The VIP of each service
must be an address of a local interface, such as lo, or of an application behind
this host (owner: table). docs/operators.md describes FILE.

SIGHUP reads the signal keys again. If the agent is killed, its programs go on
answering, and the next one takes over their flows.`,
		Args: cli.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := loadAgent(path)
			if err != nil {
				return err
			}
			return runAgent(cmd, path, cfg)
		},
	}
	configFlag(cmd, &path)
	return cmd
}

// loadAgent reads an agent's file and the key file that it names.
func loadAgent(path string) (*topo.Agent, error) {
	data, err := readConfig(path)
	if err != nil {
		return nil, err
	}
	cfg, err := config.ParseAgent(path, data, runtime.NumCPU())
	if err != nil {
		return nil, err
	}
	cfg.Keys, err = signalKeys(cfg.KeyFile, config.ParseAgentKeys)
	return cfg, err
}

func runAgent(cmd *cobra.Command, path string, cfg *topo.Agent) error {
	if err := dataplane.Preflight(); err != nil {
		return err
	}
	pages, err := openPages(cfg)
	if err != nil {
		return err
	}
	agent, err := dataplane.NewAgent(cfg)
	if err != nil {
		return err
	}
	d := &daemon{
		role:  "agent",
		node:  cfg.Node,
		plane: agent,
		log:   newLogger(cmd.ErrOrStderr()),
		ready: func() []any { return []any{"services", len(cfg.Services)} },
		status: func(s *api.Status) error {
			return offerings(s, cfg, agent, pages)
		},
		reload: func() ([]netip.Addr, error) {
			next, err := loadAgent(path)
			if err != nil {
				return nil, err
			}
			if err := sameNode(&cfg.Node, &next.Node, cfg.Flows, next.Flows); err != nil {
				return nil, err
			}
			if !slices.Equal(next.Services, cfg.Services) {
				return nil, fixed("services")
			}
			return nil, agent.SetKeys(next.Keys)
		},
	}
	if len(pages) > 0 {
		d.work = func(ctx context.Context) error { return control.Reports(ctx, pages, agent) }
	}
	return d.run(cmd.Context())
}

// openPages opens the load page of every service that reads one.
func openPages(cfg *topo.Agent) (map[int]control.Page, error) {
	pages := map[int]control.Page{}
	for i, s := range cfg.Services {
		if !s.Measure.Page() {
			continue
		}
		page, err := loadpage.OpenPage(s.Page)
		if err != nil {
			return nil, err
		}
		pages[i] = page
	}
	return pages, nil
}

// offerings describes every service of an agent.
func offerings(s *api.Status, cfg *topo.Agent, agent *dataplane.Agent, pages map[int]control.Page) error {
	var errs []error
	for i, o := range cfg.Services {
		l, err := agent.Load(i)
		errs = append(errs, err)
		load := &api.LoadStatus{Threshold: l.Threshold, Asking: l.Asking, Expected: l.Expected, Open: l.Open}
		if page, ok := pages[i]; ok {
			load.PageBusy, load.PageAge = pageStatus(page)
		}
		mode := fmt.Sprintf("%s, load %s", o.Acceptance.Spell(o.Threshold), o.Measure)
		s.Services = append(s.Services, api.ServiceStatus{Name: o.Name, VIP: o.VIP.String(), Mode: mode, Load: load})
	}
	return errors.Join(errs...)
}

// pageStatus says what a page reports and for how long it has been silent, or
// how far its writer's clock is from ours.
func pageStatus(page control.Page) (*uint32, *float64) {
	busy, written := page.Read()
	age := -1.0
	var now unix.Timespec
	if written > 0 && unix.ClockGettime(unix.CLOCK_MONOTONIC, &now) == nil {
		age = (time.Duration(now.Nano()) - written).Abs().Seconds()
	}
	return &busy, &age
}
