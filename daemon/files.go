package daemon

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"time"

	"proffer/config"
	"proffer/ownfile"
	"proffer/topo"
)

// reloadsWithin bounds the wait of a reload for the writer of a pipe.
const reloadsWithin = 10 * time.Second

// readLB reads a load balancer's file and the key file that it names.
func readLB(ctx context.Context, path string) (cfg *topo.LB, text []byte, err error) {
	if text, err = readFile(ctx, path); err != nil {
		return nil, nil, err
	}
	if cfg, err = config.ParseLB(path, text); err != nil {
		return nil, nil, err
	}
	cfg.Keys, err = signalKeys(ctx, cfg.KeyFile, config.ParseLBKeys)
	return cfg, text, err
}

// readAgent reads an agent's file and the key file that it names.
func readAgent(ctx context.Context, path string) (*topo.Agent, error) {
	data, err := readFile(ctx, path)
	if err != nil {
		return nil, err
	}
	cfg, err := config.ParseAgent(path, data, runtime.NumCPU())
	if err != nil {
		return nil, err
	}
	cfg.Keys, err = signalKeys(ctx, cfg.KeyFile, func(path string, data []byte) ([]topo.SignalKey, error) {
		return config.ParseAgentKeys(path, data, cfg.Locator)
	})
	return cfg, err
}

func readEdge(ctx context.Context, path string) (*topo.EdgeLB, error) {
	data, err := readFile(ctx, path)
	if err != nil {
		return nil, err
	}
	return config.ParseEdge(path, data)
}

func readDatapath(ctx context.Context, path string) (*topo.Datapath, error) {
	data, err := readFile(ctx, path)
	if err != nil {
		return nil, err
	}
	return config.ParseDatapath(path, data)
}

func readFile(ctx context.Context, path string) ([]byte, error) {
	f, err := ownfile.Read(ctx, path)
	if err != nil {
		return nil, fmt.Errorf("read configuration: %w", err)
	}
	return f.Data, nil
}

// signalKeys reads the signal keys from a file; no file, no keys.
func signalKeys(ctx context.Context, path string, parse func(string, []byte) ([]topo.SignalKey, error)) ([]topo.SignalKey, error) {
	if path == "" {
		return nil, nil
	}
	f, err := ownfile.Read(ctx, path)
	if err != nil {
		return nil, fmt.Errorf("read signal keys: %w", err)
	}
	if leak := f.Leak(); leak != "" {
		return nil, fmt.Errorf("signal keys %s: %s", path, leak)
	}
	return parse(path, f.Data)
}

// keeps names the key that a configuration holds.
type keeps struct{ secret, secretAt string }

// leaks is advice about a configuration with a key that lies open now.
func (k keeps) leaks() []string {
	if k.secret == "" {
		return nil
	}
	if leak := ownfile.Leak(k.secretAt); leak != "" {
		return []string{fmt.Sprintf("%s has %s: %s", k.secretAt, k.secret, leak)}
	}
	return nil
}

// sameNode returns an error for a reload that changes constants of the loaded programs.
func sameNode(was, is *topo.Node, flows, wanted topo.FlowTable) error {
	return fixed([]kept{
		{"node.name", was.Name == is.Name},
		{"node.locator", was.Locator == is.Locator},
		{"node.interface", was.Interface == is.Interface},
		{"node.pin", was.Pin == is.Pin},
		{"node.domain", slices.Equal(was.Domain, is.Domain)},
		{"control", was.Control == is.Control},
		{"flow_table", flows == wanted},
	})
}

// kept is a key that a reload may not change, and whether it has the same value.
type kept struct {
	key  string
	same bool
}

// fixed returns an error for the first key that changes.
func fixed(keys []kept) error {
	for _, k := range keys {
		if !k.same {
			return fmt.Errorf("%s cannot change while the daemon runs: restart it", k.key)
		}
	}
	return nil
}
