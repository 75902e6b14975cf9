// Command proffer is the load balancer, its agent and its instruments in one
// binary: one file a verb.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
)

// Exit codes.
const (
	exitOK     = 0
	exitFailed = 1
	exitUsage  = 2
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// usageError is a mistake in how the command was called.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

// run is the whole command as a function of its arguments.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	root := newRoot()
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)
	err := root.ExecuteContext(ctx)
	if err == nil {
		return exitOK
	}
	fmt.Fprintf(stderr, "proffer: %v\n", err)
	if usage := (usageError{}); errors.As(err, &usage) {
		return exitUsage
	}
	return exitFailed
}

func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:   "proffer",
		Short: "A load-aware layer-4 load balancer for Linux",
		Long: `Proffer offers each new connection to a short list of candidate servers, inside
the packet itself (IPv6 Segment Routing), and the server that has room takes it.

Exit codes: 0 ok, 1 failed, 2 wrong usage.`,
		SilenceErrors:     true,
		SilenceUsage:      true,
		CompletionOptions: cobra.CompletionOptions{HiddenDefaultCmd: true},
		Args:              verbOnly,
		RunE:              func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return usageError{fmt.Errorf("%w; see `%s --help`", err, cmd.CommandPath())}
	})
	root.AddCommand(newLB(), newAgent(), newStatus(), newKeys(), newDemo(), newSim(), newModel(), newFigures(), newExperiment(), newBench())
	root.SetHelpCommand(newHelp(root))
	return root
}

// newHelp is cobra's help, but a verb that is none is wrong usage.
func newHelp(root *cobra.Command) *cobra.Command {
	return &cobra.Command{
		Use:   "help [VERB]",
		Short: "Say everything about a verb",
		RunE: func(_ *cobra.Command, args []string) error {
			verb, rest, err := root.Find(args)
			if err != nil || len(rest) > 0 {
				return verbOnly(root, args)
			}
			verb.InitDefaultHelpFlag()
			return verb.Help()
		},
	}
}

// verbOnly refuses a word that is no verb.
func verbOnly(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	return usageError{fmt.Errorf("unknown verb %q; see `proffer help` for what there is", args[0])}
}

// noArguments refuses words after a verb that takes flags only.
func noArguments(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	return usageError{fmt.Errorf("%s takes no argument, got %q; see `%[1]s --help`", cmd.CommandPath(), args[0])}
}
