// Package cli is the frame of both commands, proffer and proffer-lab: exit codes, usage
// errors, help and version, so that they are the same in both.
package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"

	"github.com/spf13/cobra"

	"proffer/foreign"
)

// Exit codes.
const (
	OK     = 0
	Failed = 1
	Usage  = 2
)

// printed is an error that the command has printed.
type printed struct{ error }

func (p printed) Unwrap() error { return p.error }

// Print writes a command's error in its line, and returns it as one that Run does not write again.
func Print(w io.Writer, cmd *cobra.Command, err error) error {
	fmt.Fprintf(w, "%s: %s\n", cmd.Root().Name(), foreign.Lines(err.Error()))
	return printed{err}
}

// Main runs a command as a process until it ends or gets one of these signals, and returns
// the exit code.
func Main(root *cobra.Command, signals ...os.Signal) int {
	ctx, stop := signal.NotifyContext(context.Background(), signals...)
	defer stop()
	return Run(ctx, root, os.Args[1:], os.Stdout, os.Stderr)
}

// Run is a whole command as a function of its arguments; it returns the exit code.
func Run(ctx context.Context, root *cobra.Command, args []string, stdout, stderr io.Writer) int {
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)
	err := root.ExecuteContext(ctx)
	if err == nil {
		return OK
	}
	if done := (printed{}); !errors.As(err, &done) {
		Print(stderr, root, err)
	}
	if usage := (UsageError{}); errors.As(err, &usage) {
		return Usage
	}
	return Failed
}
