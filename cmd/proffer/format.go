package main

import (
	"strings"

	"github.com/spf13/cobra"

	"proffer/cmd/internal/cli"
	"proffer/config"
	"proffer/farm"
)

func newExample() *cobra.Command {
	return formatVerb("example", "Print a configuration file with every key",
		`Prints a configuration file of VERB, or with farm that of a whole farm, complete,
with the values and the default of each key; docs/operate/keys.md says what each
key means.`, config.Format.Example, farm.Example)
}

func newSchema() *cobra.Command {
	return formatVerb("schema", "Print the JSON Schema of a configuration file",
		`Prints the JSON Schema (draft 2020-12) of VERB's configuration file, or with farm
of a farm's file, for editors.
It says less than the daemon: mistakes that no single value shows pass it.`, config.Format.Schema, farm.Schema)
}

// formatVerb prints something of the configuration file of a verb.
func formatVerb(name, short, long string, text func(config.Format) []byte, ofFarm func() []byte) *cobra.Command {
	formats := map[string]func() []byte{"farm": ofFarm}
	verbs := []string{"farm"}
	for _, f := range config.Formats() {
		formats[f.Verb] = func() []byte { return text(f) }
		verbs = append(verbs, f.Verb)
	}
	return &cobra.Command{
		Use: name + " VERB", Short: short, Long: long, Example: "  proffer " + name + " farm",
		ValidArgs: verbs,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) != 1 {
				return cli.BadUsagef("%s takes one VERB, got %d arguments; want one of %s", cmd.CommandPath(), len(args), strings.Join(verbs, ", "))
			}
			if _, known := formats[args[0]]; !known {
				return cli.BadUsagef("%q has no configuration file; want one of %s", args[0], strings.Join(verbs, ", "))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error { return printed(cmd, formats[args[0]]()) },
	}
}
