package config

import (
	"strings"
	"time"

	"proffer/schema"
	"proffer/topo"
)

// maxDomain bounds the prefixes of an SR domain.
const maxDomain = 16

// The words for a node without a domain and without signal keys. They are no fallbacks, so
// that a node is open on purpose only.
const (
	anyDomain = "any"
	noKeys    = "none"
)

// node is the table of a machine. Its pin has no fallback: it is named after the
// node.
func node(n *topo.Node, name schema.Entry) []schema.Entry {
	return []schema.Entry{
		name,
		schema.Need("locator", locator().Into(&n.Locator)),
		schema.Need("interface", link().Into(&n.Interface)),
		schema.Optional("pin", "", pin().Into(&n.Pin)),
		schema.Need("domain", domain().ListOr(anyDomain, &n.Domain, maxDomain)),
	}
}

func signalKeys(n *topo.Node) schema.Entry {
	return schema.Need("signal_keys", keyFile().Into(&n.KeyFile))
}

func flowTable(f *topo.FlowTable, entries string, age schema.Kind[time.Duration], more ...schema.Entry) []schema.Entry {
	return append([]schema.Entry{
		schema.Optional("entries", entries, flows().Into(&f.Entries)),
		schema.Optional("idle", "5m", age.Into(&f.Idle)),
		schema.Optional("linger", "10s", age.Into(&f.Linger)),
	}, more...)
}

func flows() schema.Kind[int] { return schema.Whole(64, 16777216) }

func completeNode(n *topo.Node, role string) {
	if n.Pin == "" {
		n.Pin = "/sys/fs/bpf/proffer/" + role + "-" + strings.ReplaceAll(n.Name, ".", "_") // see pin
	}
}

// vipName names a service that has no name of its own; names have no spaces.
func vipName(v topo.VIP) string { return strings.ReplaceAll(v.String(), " ", ":") }
