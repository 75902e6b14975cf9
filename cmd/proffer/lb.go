package main

import (
	"net/netip"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"

	"proffer/api"
	"proffer/cmd/internal/cli"
	"proffer/config"
	"proffer/control"
	"proffer/dataplane"
	"proffer/topo"
)

func newLB() *cobra.Command {
	var path string
	cmd := &cobra.Command{
		Use:   "lb --config FILE",
		Short: "Run the load balancer on this host, in the foreground",
		Long: `Runs the load balancer until SIGTERM or Ctrl-C, then detaches it. Packets for
the configured services are offered or steered to servers; all others pass to
the kernel untouched. docs/operators.md describes FILE.

SIGHUP reads FILE and its signal keys again and applies services, servers, weights
and history while packets flow; a file with a mistake changes nothing. If the
daemon is killed, its programs go on forwarding, and the next one takes over
their flows.`,
		Args: cli.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := loadLB(path)
			if err != nil {
				return err
			}
			return runLB(cmd, path, cfg)
		},
	}
	configFlag(cmd, &path)
	return cmd
}

// loadLB reads a load balancer's file and the key file that it names.
func loadLB(path string) (*topo.LB, error) {
	data, err := readConfig(path)
	if err != nil {
		return nil, err
	}
	cfg, err := config.ParseLB(path, data)
	if err != nil {
		return nil, err
	}
	cfg.Keys, err = signalKeys(cfg.KeyFile, config.ParseLBKeys)
	return cfg, err
}

func runLB(cmd *cobra.Command, path string, cfg *topo.LB) error {
	if err := dataplane.Preflight(); err != nil {
		return err
	}
	begun := time.Now()
	weighed := func(cfg *topo.LB) *topo.LB { return control.Weighed(cfg, time.Since(begun), control.Configured) }
	lb, err := dataplane.NewLB(weighed(cfg))
	if err != nil {
		return err
	}
	var now atomic.Pointer[topo.LB]
	now.Store(cfg)
	d := &daemon{
		role:    "lb",
		node:    cfg.Node,
		plane:   lb,
		log:     newLogger(cmd.ErrOrStderr()),
		targets: targetsOf(cfg),
		ready: func() []any {
			ready, all := lb.Resolved()
			return []any{"servers", all, "next_hops_known", ready, "flow_table_mib", lb.FlowTableBytes() >> 20}
		},
		status: func(s *api.Status) error {
			for _, svc := range now.Load().Services {
				s.Services = append(s.Services, api.ServiceStatus{
					Name: svc.Name, VIP: svc.VIP.String(), Mode: svc.Mode(),
				})
			}
			return nil
		},
		reload: func() ([]netip.Addr, error) {
			next, err := loadLB(path)
			if err != nil {
				return nil, err
			}
			if err := sameNode(&cfg.Node, &next.Node, cfg.Flows, next.Flows); err != nil {
				return nil, err
			}
			if next.CandidateKey != cfg.CandidateKey {
				return nil, fixed("candidate_key")
			}
			if err := lb.Apply(weighed(next)); err != nil {
				return nil, err
			}
			now.Store(next)
			return targetsOf(next), nil
		},
	}
	return d.run(cmd.Context())
}

// targetsOf are the addresses whose next hops an LB must always know.
func targetsOf(cfg *topo.LB) []netip.Addr {
	var addrs []netip.Addr
	for _, svc := range cfg.Services {
		addrs = append(addrs, svc.Via...)
		for _, s := range svc.Servers {
			addrs = append(addrs, s.Locator.Addr())
		}
	}
	return unique(addrs)
}

func unique(addrs []netip.Addr) []netip.Addr {
	seen := map[netip.Addr]bool{}
	var out []netip.Addr
	for _, a := range addrs {
		if !seen[a] {
			seen[a] = true
			out = append(out, a)
		}
	}
	return out
}
