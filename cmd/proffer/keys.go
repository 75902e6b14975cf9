package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"proffer/cmd/internal/cli"
	"proffer/config"
	"proffer/ownfile"
	"proffer/topo"
	"proffer/wire"
)

func newKeys() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "keys VERB",
		Short: "Make and rotate the keys that sign signals",
		Long: `Writes files of signal keys, which signal_keys in the configuration of a load
balancer or an agent names. Every load balancer has the same file; every agent
has a file of its own, made from it by ` + "`proffer keys server`" + `, so that a server cannot
sign for another server. The first key of a file signs, all of them are accepted.
Nothing is changed in place: the new file goes to stdout. It is secret; do not
write it over the file that is read.

  umask 077
  proffer keys new > lb.keys
  proffer keys server lb.keys --locator 5f00:0:2:1::/64 > s1.keys

A rotation without loss takes three steps. Each ends when the new file, and the
agents' files made from it, are on every node, and every daemon has read its own
(SIGHUP); only then comes the next:

  1. proffer keys new --from lb.keys > next.keys      all accept the new key
  2. proffer keys promote next.keys --id 2 > lb.keys  all sign with it
  3. proffer keys drop lb.keys --id 1 > next.keys     the old key is worth nothing

A node drops signals that are signed with a key that it does not have yet, or
no longer.`,
		Args: cli.VerbOnly,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newKeysNew(), newKeysPromote(), newKeysDrop(), newKeysServer())
	return cmd
}

func newKeysNew() *cobra.Command {
	var from string
	cmd := &cobra.Command{
		Use:   "new [--from FILE]",
		Short: "Print a load balancer's file with a new key",
		Long: `Prints a load balancer's file of one random key, or with --from FILE its keys
and a new key behind them: the first step of a rotation. The new key's id is the
next above all others, and after 255 the first free id.`,
		Args: cli.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var keys []topo.SignalKey
			if cmd.Flags().Changed("from") {
				var err error
				if keys, err = readKeys(cmd.Context(), from); err != nil {
					return err
				}
			}
			keys, err := addKey(keys, rand.Reader)
			if err != nil {
				return err
			}
			return printed(cmd, config.MarshalLBKeys(keys))
		},
	}
	cmd.Flags().StringVar(&from, "from", "", "keep the keys of `FILE`, a load balancer's")
	return cmd
}

func newKeysPromote() *cobra.Command {
	return newRotation("promote", "Print a file with one of its keys first",
		`Prints a load balancer's FILE with key N first, which is the one that signs: the
second step of a rotation.`, promoteKey)
}

func newKeysDrop() *cobra.Command {
	return newRotation("drop", "Print a file without one of its keys",
		`Prints a load balancer's FILE without key N: the last step of a rotation. The key
that signs cannot be dropped: promote another key and wait for every node to have
read it.`, dropKey)
}

// newRotation makes a verb that changes the key of an id.
func newRotation(verb, short, long string, change func([]topo.SignalKey, int) ([]topo.SignalKey, error)) *cobra.Command {
	var id uint8
	cmd := &cobra.Command{
		Use:   verb + " FILE --id N",
		Short: short,
		Long:  long,
		Args:  oneFile(keysOfLB),
		RunE: func(cmd *cobra.Command, args []string) error {
			if !cmd.Flags().Changed("id") {
				return cli.BadUsage(errors.New("--id N is missing: the key to " + verb))
			}
			keys, err := readKeys(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			at := slices.IndexFunc(keys, func(k topo.SignalKey) bool { return k.ID == id })
			if at < 0 {
				return cli.BadUsagef("--id %d: %s has %s", id, args[0], idsOf(keys))
			}
			if keys, err = change(keys, at); err != nil {
				return cli.BadUsagef("--id %d: %w", id, err)
			}
			return printed(cmd, config.MarshalLBKeys(keys))
		},
	}
	cmd.Flags().Uint8Var(&id, "id", 0, "the key of id `N`")
	return cmd
}

func newKeysServer() *cobra.Command {
	var locator string
	cmd := &cobra.Command{
		Use:   "server FILE --locator PREFIX",
		Short: "Print the file of one server's agent",
		Long: `Prints the file of the agent with the node.locator PREFIX, made from a load
balancer's FILE: the farm's keys, and keys of the server's own in place of their
masters. The same FILE always gives the same keys.`,
		Args: oneFile(keysOfLB),
		RunE: func(cmd *cobra.Command, args []string) error {
			if locator == "" {
				return cli.BadUsage(errors.New("--locator PREFIX is missing: the server's, as in node.locator of its agent"))
			}
			at, err := config.ParseLocator(locator)
			if err != nil {
				return cli.BadUsagef("--locator: %w", err)
			}
			keys, err := readKeys(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			for i := range keys {
				keys[i].Server = wire.ServerKey(keys[i].Server, at)
			}
			return printed(cmd, config.MarshalAgentKeys(keys, at))
		},
	}
	cmd.Flags().StringVar(&locator, "locator", "", "locator of the server, a /64 `PREFIX`")
	return cmd
}

const keysOfLB = "a load balancer's file of signal keys"

// oneFile returns a usage error unless the verb has a single argument, which is described.
func oneFile(description string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		switch len(args) {
		case 0:
			return cli.BadUsagef("FILE is missing: %s; see `%s --help`", description, cmd.CommandPath())
		case 1:
			return nil
		default:
			return cli.BadUsagef("%s takes one FILE, got %q too; see `%[1]s --help`", cmd.CommandPath(), args[1])
		}
	}
}

// readKeys reads a load balancer's file.
func readKeys(ctx context.Context, path string) ([]topo.SignalKey, error) {
	f, err := ownfile.Read(ctx, path)
	if err != nil {
		return nil, fmt.Errorf("read keys: %w", err)
	}
	return config.ParseLBKeys(path, f.Data)
}

func printed(cmd *cobra.Command, file []byte) error {
	if _, err := cmd.OutOrStdout().Write(file); err != nil {
		return fmt.Errorf("print: %w", err)
	}
	return nil
}

// addKey puts a new key behind the others.
func addKey(keys []topo.SignalKey, random io.Reader) ([]topo.SignalKey, error) {
	if len(keys) == config.MaxKeys {
		return nil, cli.BadUsagef("--from: there are %d keys already, the maximum; drop a key first", len(keys))
	}
	k := topo.SignalKey{ID: freeID(keys)}
	for _, secret := range [][]byte{k.Farm[:], k.Server[:]} {
		if _, err := io.ReadFull(random, secret); err != nil {
			return nil, fmt.Errorf("make a key: %w", err)
		}
	}
	return append(keys, k), nil
}

// freeID is above all other ids: a node may still have a dropped key under its id.
func freeID(keys []topo.SignalKey) uint8 {
	var id uint8
	taken := map[uint8]bool{0: true} // on the wire: no tag
	for _, k := range keys {
		id = max(id, k.ID)
		taken[k.ID] = true
	}
	for id++; taken[id]; {
		id++ // after 255 comes 0
	}
	return id
}

func promoteKey(keys []topo.SignalKey, at int) ([]topo.SignalKey, error) {
	first := keys[at]
	return slices.Insert(slices.Delete(keys, at, at+1), 0, first), nil
}

func dropKey(keys []topo.SignalKey, at int) ([]topo.SignalKey, error) {
	switch {
	case len(keys) == 1:
		return nil, errors.New("it is the only key; for signals without tags write signal_keys: none in every configuration")
	case at == 0:
		return nil, errors.New("it is the key that signs; promote another key first")
	}
	return slices.Delete(keys, at, at+1), nil
}

func idsOf(keys []topo.SignalKey) string {
	ids := make([]string, len(keys))
	for i, k := range keys {
		ids[i] = fmt.Sprint(k.ID)
	}
	return "the keys " + strings.Join(ids, ", ")
}
