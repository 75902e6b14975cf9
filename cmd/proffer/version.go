package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"proffer/cmd/internal/cli"
)

func newVersion() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print which build this is",
		Long: `Prints the version of the source, the compiler and the platform in one line, as
--version does. docs/operate/upgrading.md has the steps from one version to the next.`,
		Args: cli.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := fmt.Fprintln(cmd.OutOrStdout(), "proffer version "+cli.Version())
			return err
		},
	}
}
