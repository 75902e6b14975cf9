package daemon

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"runtime"
	"slices"

	"proffer/farm"
	"proffer/ownfile"
	"proffer/topo"
)

// FarmFile names a farm's file, the secrets of this node, and the node.
type FarmFile struct{ Path, Secrets, Name string }

// Farm runs the role of a node of a farm, until ctx ends.
func Farm(ctx context.Context, at FarmFile, host *Host) error {
	o := &farmOrigin{FarmFile: at, linkOf: host.LinkOf, running: -1}
	_, n, err := o.node(ctx)
	if err != nil {
		return err
	}
	o.role = n.Role()
	run := map[farm.Role]func(context.Context, origin, *Host) error{farm.LB: runLB, farm.Server: runAgent, farm.Edge: runEdge, farm.NF: runNF}
	if o.role == farm.Server && n.Deliveries[0] != topo.ByAgent {
		return fmt.Errorf("node %s has delivery: %s, so nothing of Proffer runs there: its kernel takes the packets (`proffer help server-setup`)", n.Name, n.Deliveries[0])
	}
	return run[o.role](ctx, o, host)
}

// FarmControl is the control socket of a node of a farm.
func FarmControl(ctx context.Context, at FarmFile) (string, error) {
	_, n, err := (&farmOrigin{FarmFile: at, running: -1}).node(ctx)
	if err != nil {
		return "", err
	}
	return n.ControlSocket(), nil
}

// farmOrigin derives the configuration of a node from the farm's file, each time.
type farmOrigin struct {
	FarmFile
	linkOf  func(netip.Addr) (string, error)
	role    farm.Role
	read    int // the version that was read last
	running int // … and that is applied; -1: none
}

// node reads the farm's file, and finds this node in it.
func (o *farmOrigin) node(ctx context.Context) (*farm.Farm, *farm.Node, error) {
	file, err := ownfile.Read(ctx, o.Path)
	if err != nil {
		return nil, nil, fmt.Errorf("read the farm: %w", err)
	}
	f, _, err := farm.Parse(o.Path, file.Data)
	if err != nil {
		return nil, nil, err
	}
	n := f.Node(o.Name)
	switch {
	case n == nil:
		return nil, nil, farm.Mistake(o.Path, file.Data, "nodes", fmt.Sprintf("have no %q, the name of this node; %s, or --name with another one", o.Name, f.Meant(o.Name)))
	case o.role != farm.NoRole && n.Role() != o.role:
		return nil, nil, farm.Mistake(o.Path, file.Data, "nodes."+n.Name, fmt.Sprintf("is %s now, and runs as %s: restart it", n.Role(), o.role))
	case f.Version < o.running:
		return nil, nil, farm.Mistake(o.Path, file.Data, "version", fmt.Sprintf("%d is below %d, which this node runs; want a version as high, or higher", f.Version, o.running))
	}
	o.read = f.Version
	return f, n, nil
}

// derive reads all that a configuration is derived from.
func (o *farmOrigin) derive(ctx context.Context) (*farm.Farm, *farm.Node, *farm.Secrets, farm.Local, error) {
	local := farm.Local{CPUs: runtime.NumCPU()}
	f, n, err := o.node(ctx)
	if err != nil {
		return nil, nil, nil, local, err
	}
	file, err := ownfile.Read(ctx, o.Secrets)
	if err != nil {
		return nil, nil, nil, local, fmt.Errorf("read the secrets: %w", err)
	}
	if leak := file.Leak(); leak != "" {
		return nil, nil, nil, local, fmt.Errorf("secrets %s: %s", o.Secrets, leak)
	}
	s, err := farm.ParseSecrets(o.Secrets, file.Data, f, n)
	if err == nil && n.Link == "" {
		if local.Link, err = o.linkOf(n.At().Addr); err != nil {
			err = fmt.Errorf("%s: nodes.%s.%s: %w", o.Path, n.Name, n.Role(), err)
		}
	}
	return f, n, s, local, err
}

func (o *farmOrigin) LB(ctx context.Context) (*topo.LB, pools, error) {
	f, n, s, local, err := o.derive(ctx)
	if err != nil {
		return nil, nil, err
	}
	return f.LB(n, s, local), func(_ int, problem string) error { return fmt.Errorf("%s: version: %s", o.Path, problem) }, nil
}

func (o *farmOrigin) Agent(ctx context.Context) (*topo.Agent, error) {
	f, n, s, local, err := o.derive(ctx)
	if err != nil {
		return nil, err
	}
	return f.Agent(n, s, local), nil
}

func (o *farmOrigin) Edge(ctx context.Context) (*topo.EdgeLB, error) {
	f, n, s, local, err := o.derive(ctx)
	if err != nil {
		return nil, err
	}
	return f.EdgeLB(n, s, local), nil
}

func (o *farmOrigin) NF(ctx context.Context) (*topo.Datapath, error) {
	f, n, s, local, err := o.derive(ctx)
	if err != nil {
		return nil, err
	}
	return f.Datapath(n, s, local), nil
}

func (o *farmOrigin) applied() { o.running = o.read }

func (o *farmOrigin) keeps(string) keeps { return keeps{"the secrets", o.Secrets} }

// linkWith is the name of this host's link with an address.
func linkWith(addr netip.Addr) (string, error) {
	links, err := net.Interfaces()
	if err != nil {
		return "", fmt.Errorf("list the links of this host: %w", err)
	}
	var names []string
	for _, l := range links {
		addrs, err := l.Addrs()
		if err != nil {
			continue // it has gone
		}
		if slices.ContainsFunc(addrs, func(a net.Addr) bool {
			p, err := netip.ParsePrefix(a.String())
			return err == nil && p.Addr().Unmap() == addr
		}) {
			return l.Name, nil
		}
		names = append(names, l.Name)
	}
	return "", fmt.Errorf("%s is the address of no link of this host (%v); want one of its addresses, or the key link", addr, names)
}

// changes asks to read again at SIGHUP, and when the farm's file or the secrets change.
func (o *farmOrigin) changes() (<-chan os.Signal, func(), error) {
	hangups, stop := onHangup()
	watched, err := watchFiles(o.Path, o.Secrets)
	if err != nil {
		stop()
		return nil, nil, err
	}
	all, over := make(chan os.Signal, 1), make(chan struct{})
	go func() {
		for {
			var s os.Signal
			select {
			case <-over:
				return
			case s = <-hangups:
			case s = <-watched.changed:
			}
			select {
			case all <- s:
			default: // one before it waits
			}
		}
	}()
	return all, func() {
		close(over)
		stop()
		watched.Close()
	}, nil
}
