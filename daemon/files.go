package daemon

import (
	"fmt"
	"os"
	"runtime"
	"slices"

	"proffer/config"
	"proffer/topo"
)

// readLB reads a load balancer's file and the key file that it names.
func readLB(path string) (cfg *topo.LB, text []byte, err error) {
	if text, err = readFile(path); err != nil {
		return nil, nil, err
	}
	if cfg, err = config.ParseLB(path, text); err != nil {
		return nil, nil, err
	}
	cfg.Keys, err = signalKeys(cfg.KeyFile, config.ParseLBKeys)
	return cfg, text, err
}

// readAgent reads an agent's file and the key file that it names.
func readAgent(path string) (*topo.Agent, error) {
	data, err := readFile(path)
	if err != nil {
		return nil, err
	}
	cfg, err := config.ParseAgent(path, data, runtime.NumCPU())
	if err != nil {
		return nil, err
	}
	cfg.Keys, err = signalKeys(cfg.KeyFile, func(path string, data []byte) ([]topo.SignalKey, error) {
		return config.ParseAgentKeys(path, data, cfg.Locator)
	})
	return cfg, err
}

func readFile(path string) ([]byte, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read configuration: %w", err)
	}
	return data, nil
}

// signalKeys reads the signal keys from a file; no file, no keys.
func signalKeys(path string, parse func(string, []byte) ([]topo.SignalKey, error)) ([]topo.SignalKey, error) {
	if path == "" {
		return nil, nil
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read signal keys: %w", err)
	}
	info, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("read signal keys: %w", err)
	}
	if mode := info.Mode().Perm(); mode&0o007 != 0 {
		return nil, fmt.Errorf("signal keys %s: mode %04o gives every user of this host the keys: `chmod 600 %[1]s`", path, mode)
	}
	return parse(path, data)
}

// sameNode returns an error for a reload that changes constants of the loaded programs.
func sameNode(was, is *topo.Node, flows, wanted topo.FlowTable) error {
	switch {
	case was.Name != is.Name:
		return fixed("node.name")
	case was.Locator != is.Locator:
		return fixed("node.locator")
	case was.Interface != is.Interface:
		return fixed("node.interface")
	case was.Pin != is.Pin:
		return fixed("node.pin")
	case !slices.Equal(was.Domain, is.Domain):
		return fixed("node.domain")
	case was.Control != is.Control:
		return fixed("control")
	case flows != wanted:
		return fixed("flow_table")
	}
	return nil
}

func fixed(key string) error {
	return fmt.Errorf("%s cannot change while the daemon runs: restart it", key)
}
