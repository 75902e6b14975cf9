package main

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"proffer/cmd/internal/cli"
	"proffer/config"
	"proffer/farm"
	"proffer/topo"
)

// initFlags are those of init.
type initFlags struct {
	name                          string
	lbs, servers, agentless, vips []string
	secrets                       string
}

func newInit() *cobra.Command {
	var flags initFlags
	cmd := &cobra.Command{
		Use:   "init --lb NAME=ADDR --server NAME=ADDR … --vip ADDR:PORT",
		Short: "Print a new farm's file, and write the secrets of each node",
		Long: `Prints a farm's file with these nodes and one service, and writes secrets-NAME.yaml
for each of them into a folder: an LB's keys, and for each server keys that are
derived for it alone. It replaces no file. Hand each node its own over once, as
/etc/proffer/secrets.yaml, and the farm's file to all of them.

--server is a host with an agent, --agentless a host on the LBs' link whose kernel
takes the packets. With agents alone the service hunts, else it learns
(docs/design/choosers.md). Each flag may be given several times.`,
		Example: "  proffer init --lb lb1=2001:db8:1::1 --server s1=2001:db8:1::11 --server s2=2001:db8:1::12 \\\n    --vip [2001:db8:f::1]:80 --vip 192.0.2.10:80 > farm.yaml",
		Args:    cli.NoArguments,
		RunE:    func(cmd *cobra.Command, _ []string) error { return flags.run(cmd) },
	}
	cmd.Flags().StringVar(&flags.name, "farm", "farm", "the farm's `NAME`")
	cmd.Flags().StringArrayVar(&flags.lbs, "lb", nil, "a load balancer, as `NAME=ADDR`")
	cmd.Flags().StringArrayVar(&flags.servers, "server", nil, "a server with an agent, as `NAME=ADDR`")
	cmd.Flags().StringArrayVar(&flags.agentless, "agentless", nil, "a server without an agent, as `NAME=ADDR`")
	cmd.Flags().StringArrayVar(&flags.vips, "vip", nil, "an address and port of the service, as `ADDR:PORT`, or udp/ADDR:PORT")
	cmd.Flags().StringVar(&flags.secrets, "secrets", ".", "`FOLDER` for the secrets")
	return cmd
}

func (f *initFlags) run(cmd *cobra.Command) error {
	b := &farm.Begin{Name: f.name}
	var err error
	for _, list := range []struct {
		flag  string
		texts []string
		to    *[]farm.Host
	}{{"lb", f.lbs, &b.LBs}, {"server", f.servers, &b.Servers}, {"agentless", f.agentless, &b.Agentless}} {
		for _, text := range list.texts {
			h, wrong := hostOf(list.flag, text)
			err = errors.Join(err, wrong)
			*list.to = append(*list.to, h)
		}
	}
	for _, text := range f.vips {
		v, wrong := vipOf(text)
		err = errors.Join(err, wrong)
		b.VIPs = append(b.VIPs, v)
	}
	switch {
	case err != nil:
		return cli.BadUsage(err)
	case len(b.LBs) == 0:
		return cli.BadUsagef("--lb NAME=ADDR is missing: the load balancer")
	case len(b.Servers)+len(b.Agentless) == 0:
		return cli.BadUsagef("--server NAME=ADDR or --agentless NAME=ADDR is missing: a host that takes connections")
	case len(b.VIPs) == 0:
		return cli.BadUsagef("--vip ADDR:PORT is missing: the address of the service")
	}
	text := farm.Marshal(b.Begun())
	whole, _, err := farm.Parse("the new farm", text)
	if err != nil {
		return cli.BadUsage(err)
	}
	if err := writeSecrets(whole, f.secrets); err != nil {
		return err
	}
	return printed(cmd, text)
}

func hostOf(flag, text string) (farm.Host, error) {
	name, addr, both := strings.Cut(text, "=")
	if !both {
		return farm.Host{}, fmt.Errorf("--%s %q: want NAME=ADDR", flag, text)
	}
	a, err := config.HostAddress("host").Parse(addr)
	if err != nil {
		return farm.Host{}, fmt.Errorf("--%s %s: %w", flag, text, err)
	}
	return farm.Host{Name: name, Addr: a}, nil
}

func vipOf(text string) (topo.VIP, error) {
	rest, udp := strings.CutPrefix(text, "udp/")
	at, err := netip.ParseAddrPort(rest)
	if err != nil || at.Port() == 0 {
		return topo.VIP{}, fmt.Errorf("--vip %q: want ADDR:PORT such as 192.0.2.10:80 or [2001:db8:f::1]:80", text)
	}
	v := topo.VIP{Addr: at.Addr(), Port: at.Port()}
	if udp {
		v.Protocol = topo.UDP
	}
	return v, nil
}

// writeSecrets makes the keys of a farm and writes those of each node, if there is none of the files yet.
func writeSecrets(f *farm.Farm, folder string) error {
	secrets, err := farm.NewSecrets(f.Name, rand.Reader)
	if err != nil {
		return err
	}
	path := func(n *farm.Node) string { return filepath.Join(folder, "secrets-"+n.Name+".yaml") }
	for i := range f.Nodes {
		if _, err := os.Lstat(path(&f.Nodes[i])); err == nil {
			return fmt.Errorf("%s is there already: its keys may be in use; remove it, or name another --secrets folder", path(&f.Nodes[i]))
		} else if !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("look for %s: %w", path(&f.Nodes[i]), err)
		}
	}
	for i := range f.Nodes {
		n := &f.Nodes[i]
		if n.Role() == farm.Server && n.Deliveries[0] != topo.ByAgent {
			continue // it has no software of ours
		}
		out, err := os.OpenFile(path(n), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
		if err != nil {
			return fmt.Errorf("write the secrets of %s: %w", n.Name, err)
		}
		_, err = out.Write(farm.MarshalSecrets(secrets.Of(n)))
		if err = errors.Join(err, out.Close()); err != nil {
			return fmt.Errorf("write the secrets of %s: %w", n.Name, err)
		}
	}
	return nil
}
