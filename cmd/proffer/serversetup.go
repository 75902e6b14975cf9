package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"proffer/agentless"
	"proffer/cmd/internal/cli"
	"proffer/config"
	"proffer/ownfile"
)

// setupFlags are those of server-setup.
type setupFlags struct {
	config, link               string
	behind, check, undo, print bool
}

func newServerSetup() *cobra.Command {
	var flags setupFlags
	cmd := &cobra.Command{
		Use:   "server-setup --config FILE [--link LINK] [--behind] [--check | --undo] [--json] SERVER",
		Short: "Print the commands that set up a server without an agent",
		Long: `Prints the commands that SERVER needs to take packets of the services which have
it in FILE, a load balancer's configuration, by a delivery other than agent: for
the kernel's End.DT6, End.DX6 or End.DX4, its link address, or VXLAN. Each stands
behind a comment with its reason. They may be given to a shell on that server,
once or again:

  proffer server-setup --config lb.yaml s1 | ssh root@s1 sh

They last until the server's next start: put them where its other settings are.
With --behind, packets go on to a host or container behind the server, which has
the VIPs (delivery: dx6 or dx4; with dx6 they always do).

No software of Proffer runs there, but for --check, which reads settings,
addresses, links and routes of this host, prints a line for each step, and changes
nothing. A step that is wrong has the reason and the command that mends it. It
looks at no MTU on the way from the load balancers.

--undo prints the commands that take the set-up back; settings of the kernel stay.
--json prints one JSON object: why, command, undo of each step, and with --check
ok and wrong.

Exit codes: 0 ok, 1 with --check a step is wrong, or FILE has a mistake, or SERVER runs
an agent; 2 wrong usage, as a SERVER that FILE does not have. docs/operate/agentless.md
describes the deliveries.`,
		Args: oneServer,
		RunE: func(cmd *cobra.Command, args []string) error {
			return flags.run(cmd.Context(), cmd.OutOrStdout(), args[0])
		},
	}
	cmd.Flags().StringVarP(&flags.config, "config", "c", "", "configuration `FILE` of a load balancer (YAML; required)")
	cmd.Flags().StringVar(&flags.link, "link", "eth0", "the server's `LINK` towards the load balancers")
	cmd.Flags().BoolVar(&flags.behind, "behind", false, "the VIPs are those of a host or container behind the server (dx6, dx4), not of its lo")
	cmd.Flags().BoolVar(&flags.check, "check", false, "look whether this host has it all")
	cmd.Flags().BoolVar(&flags.undo, "undo", false, "print the commands that take it back")
	cmd.Flags().BoolVar(&flags.print, "json", false, "print one JSON object")
	return cmd
}

// oneServer returns a usage error unless there is a single name.
func oneServer(cmd *cobra.Command, args []string) error {
	switch len(args) {
	case 0:
		return cli.BadUsagef("SERVER is missing: the name of a server in the configuration; see `%s --help`", cmd.CommandPath())
	case 1:
		return nil
	default:
		return cli.BadUsagef("%s takes one SERVER, got %q as well; see `%[1]s --help`", cmd.CommandPath(), args[1])
	}
}

func (f *setupFlags) run(ctx context.Context, out io.Writer, server string) error {
	switch {
	case f.config == "":
		return cli.BadUsagef("--config FILE is missing: a load balancer's YAML configuration")
	case f.check && f.undo:
		return cli.BadUsagef("--check and --undo exclude each other")
	case !agentless.IsLinkName(f.link):
		return cli.BadUsagef("--link %q is no name of a link: want up to 15 letters, digits and ._@+-", f.link)
	}
	setup, err := f.setup(ctx, server)
	if err != nil {
		return err
	}
	reports, lacking := setup.Reports(), 0
	if f.check {
		if reports, lacking, err = setup.Check(); err != nil {
			return err
		}
	}
	switch {
	case f.print:
		err = printJSON(out, setup, reports)
	case f.check:
		printReports(out, reports)
	case f.undo:
		_, err = io.WriteString(out, setup.UndoScript())
	default:
		_, err = io.WriteString(out, setup.Script())
	}
	if err == nil && lacking > 0 {
		err = fmt.Errorf("%d of %d steps are wrong on this host", lacking, len(reports))
	}
	return err
}

// setup reads the configuration.
func (f *setupFlags) setup(ctx context.Context, server string) (*agentless.Setup, error) {
	file, err := ownfile.Read(ctx, f.config)
	if err != nil {
		return nil, fmt.Errorf("read the configuration: %w", err)
	}
	lb, err := config.ParseLB(f.config, file.Data)
	if err != nil {
		return nil, err
	}
	setup, err := agentless.Of(lb, server, f.link, f.behind)
	var unknown *agentless.UnknownServer
	if errors.As(err, &unknown) {
		return nil, cli.BadUsage(err)
	}
	return setup, err
}

// printReports prints a line a step.
func printReports(out io.Writer, reports []agentless.Report) {
	for _, r := range reports {
		switch {
		case *r.OK:
			fmt.Fprintf(out, "ok     %s\n", r.Why)
		case r.Do == "":
			fmt.Fprintf(out, "wrong  %s: %s\n", r.Why, r.Lacks)
		default:
			fmt.Fprintf(out, "wrong  %s: %s: `%s`\n", r.Why, r.Lacks, r.Do)
		}
	}
}

func printJSON(out io.Writer, setup *agentless.Setup, reports []agentless.Report) error {
	enc := json.NewEncoder(out)
	enc.SetIndent("", "  ")
	enc.SetEscapeHTML(false)
	return enc.Encode(struct {
		Server string             `json:"server"`
		Link   string             `json:"link"`
		Steps  []agentless.Report `json:"steps"`
	}{setup.Server, setup.Link, reports})
}
