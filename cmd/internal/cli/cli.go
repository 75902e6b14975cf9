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
	fmt.Fprintf(stderr, "%s: %s\n", root.Name(), foreign.Lines(err.Error()))
	if usage := (UsageError{}); errors.As(err, &usage) {
		return Usage
	}
	return Failed
}
