package main

import (
	"fmt"
	"net/netip"

	"github.com/spf13/cobra"

	"proffer/api"
	"proffer/config"
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
the kernel untouched. docs/operators.md describes FILE.`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			data, err := readConfig(path)
			if err != nil {
				return err
			}
			cfg, err := config.ParseLB(path, data)
			if err != nil {
				return err
			}
			return runLB(cmd, cfg)
		},
	}
	configFlag(cmd, &path)
	return cmd
}

func runLB(cmd *cobra.Command, cfg *topo.LB) error {
	if err := dataplane.Preflight(); err != nil {
		return err
	}
	lb, err := dataplane.NewLB(cfg)
	if err != nil {
		return err
	}
	d := &daemon{
		role:  "lb",
		node:  cfg.Node,
		plane: lb,
		log:   newLogger(cmd.ErrOrStderr()),
		ready: func() []any {
			ready, all := lb.Resolved()
			return []any{"servers", all, "next_hops_known", ready}
		},
		status: func(s *api.Status) error {
			for _, svc := range cfg.Services {
				s.Services = append(s.Services, api.ServiceStatus{
					Name: svc.Name, VIP: svc.VIP.String(), Mode: modeOf(&svc),
				})
			}
			return nil
		},
	}
	for _, svc := range cfg.Services {
		for _, s := range svc.Servers {
			d.targets = append(d.targets, s.Locator.Addr())
		}
	}
	d.targets = unique(d.targets)
	return d.run(cmd.Context())
}

func modeOf(svc *topo.Service) string {
	if svc.Dispatch == topo.Single {
		return fmt.Sprintf("single, %d servers", len(svc.Servers))
	}
	return fmt.Sprintf("hunt, %d of %d servers", min(svc.Choices, len(svc.Servers)), len(svc.Servers))
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
