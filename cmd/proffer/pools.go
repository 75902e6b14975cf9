package main

import (
	"github.com/spf13/cobra"

	"proffer/config"
	"proffer/history"
)

func newPools() *cobra.Command {
	return &cobra.Command{
		Use:   "pools FILE",
		Short: "Print the pools that a load balancer has recorded, as configuration",
		Long: `Prints the pools of FILE, the record of a load balancer (state in its
configuration), as the keys version, servers and history of each service: for the
file of another load balancer that has served none of them. Pools with equal
versions are numbered again, the newest with the highest number.`,
		Args: oneFile("the record of a load balancer, `state` in its configuration"),
		RunE: func(cmd *cobra.Command, args []string) error {
			record, err := history.Load(args[0])
			if err != nil {
				return err
			}
			return printed(cmd, config.MarshalPools(record.Services()))
		},
	}
}
