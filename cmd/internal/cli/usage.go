package cli

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
)

// UsageError is a mistake in the command's arguments.
type UsageError struct{ error }

func (e UsageError) Unwrap() error { return e.error }

// BadUsage makes err a usage error.
func BadUsage(err error) error { return UsageError{err} }

// BadUsagef is BadUsage of a new error.
func BadUsagef(format string, args ...any) error { return UsageError{fmt.Errorf(format, args...)} }

// NoArguments returns a usage error for words after a verb that takes flags only.
func NoArguments(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	return BadUsagef("%s takes no argument, got %q; see `%[1]s --help`", cmd.CommandPath(), args[0])
}

// VerbOnly returns a usage error for a word that is no verb of cmd, which has verbs and
// does nothing itself.
func VerbOnly(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	program := cmd.Root().Name()
	above := strings.TrimSpace(strings.TrimPrefix(cmd.CommandPath(), program))
	hint := ""
	if close := cmd.SuggestionsFor(args[0]); len(close) > 0 {
		hint = fmt.Sprintf("did you mean %s? ", strings.TrimSpace(above+" "+close[0]))
	}
	return BadUsagef("unknown verb %q; %ssee `%s` for the list",
		strings.TrimSpace(above+" "+args[0]), hint, strings.TrimSpace(program+" help "+above))
}
