package config

import (
	"strings"
	"time"

	"proffer/topo"
)

// maxDomain bounds the prefixes of an SR domain.
const maxDomain = 16

// node is the table of a machine. Its pin has no fallback: it is named after the
// node.
func node(n *topo.Node, name entry) []entry {
	return []entry{
		name,
		need("locator", scalar(&n.Locator, locator())),
		need("interface", scalar(&n.Interface, link())),
		optional("pin", "", scalar(&n.Pin, pin())),
		optional("domain", "", scalars(&n.Domain, maxDomain, domain())),
	}
}

func signalKeys(n *topo.Node) entry {
	return optional("signal_keys", "", scalar(&n.KeyFile, keyFile()))
}

func flowTable(f *topo.FlowTable, entries string, age kind[time.Duration], more ...entry) []entry {
	return append([]entry{
		optional("entries", entries, scalar(&f.Entries, flows())),
		optional("idle", "5m", scalar(&f.Idle, age)),
		optional("linger", "10s", scalar(&f.Linger, age)),
	}, more...)
}

func flows() kind[int] { return whole(64, 16777216) }

func completeNode(n *topo.Node, role string) {
	if n.Pin == "" {
		n.Pin = "/sys/fs/bpf/proffer/" + role + "-" + strings.ReplaceAll(n.Name, ".", "_") // see pin
	}
}

// vipName names a service that has no name of its own; names have no spaces.
func vipName(v topo.VIP) string { return strings.ReplaceAll(v.String(), " ", ":") }
