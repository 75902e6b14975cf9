package cli

import (
	"fmt"

	"github.com/spf13/cobra"
)

// Root completes a command that has a name and texts: wrong flags and words are usage
// errors, help lists every verb, --version prints the build. Cobra's templates stay as
// they are: a changed template needs text/template, and then the linker keeps every
// exported method, 3 MiB in proffer.
func Root(root *cobra.Command, verbs ...*cobra.Command) *cobra.Command {
	root.SilenceErrors, root.SilenceUsage = true, true
	root.CompletionOptions.HiddenDefaultCmd = true
	root.SuggestionsMinimumDistance = 2
	root.Args = VerbOnly
	root.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
	root.Version = Version()
	root.Flags().Bool("version", false, "print which build this is")
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return UsageError{fmt.Errorf("%w; see `%s --help`", err, cmd.CommandPath())}
	})
	root.AddCommand(verbs...)
	root.SetHelpCommand(help(root))
	return root
}

// help is cobra's, but an unknown verb is a usage error.
func help(root *cobra.Command) *cobra.Command {
	return &cobra.Command{
		Use:   "help [VERB]",
		Short: "Explain a verb with its flags",
		RunE: func(_ *cobra.Command, args []string) error {
			verb, rest, err := root.Find(args)
			switch {
			case err != nil:
				return VerbOnly(root, args)
			case verb.Hidden:
				return verb.RunE(verb, rest)
			case len(rest) > 0:
				return VerbOnly(verb, rest)
			}
			verb.InitDefaultHelpFlag()
			return verb.Help()
		},
	}
}

// Elsewhere are verbs of the other program: each is a usage error that names the
// command to run instead. How gives the reason, as "moved to".
func Elsewhere(how, program string, verbs ...string) []*cobra.Command {
	var commands []*cobra.Command
	for _, verb := range verbs {
		commands = append(commands, &cobra.Command{
			Use:                verb,
			Hidden:             true,
			DisableFlagParsing: true,
			RunE: func(*cobra.Command, []string) error {
				return BadUsagef("%s %s %s: run `%[3]s %[1]s`", verb, how, program)
			},
		})
	}
	return commands
}
