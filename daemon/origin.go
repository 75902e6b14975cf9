package daemon

import (
	"context"
	"fmt"
	"os"

	"proffer/config"
	"proffer/topo"
)

// origin is where the configuration of a daemon comes from. What is read may be applied, or refused.
type origin interface {
	LB(context.Context) (_ *topo.LB, wrong pools, _ error)
	Agent(context.Context) (*topo.Agent, error)
	Edge(context.Context) (*topo.EdgeLB, error)
	NF(context.Context) (*topo.Datapath, error)

	changes() (<-chan os.Signal, func(), error) // asks to read again, until stop
	applied()                                   // what was read last
	keeps(key string) keeps                     // the place of a key
}

// pools makes an error at the version of a service's pool.
type pools func(service int, problem string) error

// ownFile is the file of a node's own, at a path.
type ownFile string

func (f ownFile) LB(ctx context.Context) (*topo.LB, pools, error) {
	cfg, text, err := readLB(ctx, string(f))
	return cfg, func(service int, problem string) error {
		return config.LBMistake(string(f), text, fmt.Sprintf("services[%d].version", service), problem)
	}, err
}

func (f ownFile) Agent(ctx context.Context) (*topo.Agent, error) { return readAgent(ctx, string(f)) }
func (f ownFile) Edge(ctx context.Context) (*topo.EdgeLB, error) { return readEdge(ctx, string(f)) }
func (f ownFile) NF(ctx context.Context) (*topo.Datapath, error) {
	return readDatapath(ctx, string(f))
}

func (f ownFile) applied() {}

func (f ownFile) keeps(key string) keeps { return keeps{key, string(f)} }

func (f ownFile) changes() (<-chan os.Signal, func(), error) {
	hangups, stop := onHangup()
	return hangups, stop, nil
}

// LB runs the load balancer that the file at path describes, until ctx ends.
func LB(ctx context.Context, path string, host *Host) error { return runLB(ctx, ownFile(path), host) }

// Agent runs the agent that the file at path describes, until ctx ends.
func Agent(ctx context.Context, path string, host *Host) error {
	return runAgent(ctx, ownFile(path), host)
}

// Edge runs the edge LB that the file at path describes, until ctx ends.
func Edge(ctx context.Context, path string, host *Host) error {
	return runEdge(ctx, ownFile(path), host)
}

// NF runs the network functions that the file at path describes, until ctx ends.
func NF(ctx context.Context, path string, host *Host) error { return runNF(ctx, ownFile(path), host) }
