package config

import (
	"strconv"
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

// node is the table of a machine.
func node(n *topo.Node, role, at string, name schema.Entry) []schema.Entry {
	return []schema.Entry{
		name,
		schema.Need("locator", Locator().Into(&n.Locator), "Prefix of every SID of the node.").Eg(strconv.Quote(at)),
		schema.Need("interface", Link().Into(&n.Interface), "Interface of the programs."),
		pinRow(role, &n.Pin),
		schema.Need("domain", DomainPrefix().ListOr(anyDomain, &n.Domain, maxDomain),
			"Prefixes of the SR domain: SR packets from elsewhere are dropped. any: none is.").Eg(`["5f00:0:1::/48", "5f00:0:2::/48"]`, anyDomain),
	}
}

// control is the key of a daemon's socket.
func control(role string, dst *string) schema.Entry {
	return schema.Optional("control", "/run/proffer/"+role+".sock", Socket().Into(dst), "Unix socket that answers `proffer status`.")
}

func signalKeys(n *topo.Node) schema.Entry {
	return schema.Need("signal_keys", keyFile().Into(&n.KeyFile),
		"File of the keys of signals (`proffer help keys`), read again on SIGHUP. none: signals are neither signed nor checked.")
}

func flowTable(f *topo.FlowTable, entries string, age schema.Kind[time.Duration], more ...schema.Entry) []schema.Entry {
	return append([]schema.Entry{
		schema.Optional("entries", entries, FlowCount().Into(&f.Entries), "Flows remembered at once."),
		schema.Optional("idle", "5m", age.Into(&f.Idle),
			"A flow without packets for so long is forgotten; an open TCP connection that would be lost, after 2h4m at least."),
		schema.Optional("linger", "10s", age.Into(&f.Linger), "How long a closed flow is remembered."),
	}, more...)
}

func FlowCount() schema.Kind[int] { return schema.Whole(64, 16777216) }

// vipKeys is the keys of a service that clients see.
func vipKeys(name *string, vip *topo.VIP) []schema.Entry {
	return []schema.Entry{
		schema.Optional("name", "", schema.Name().Into(name), "Name in counters and logs; VIP:port or udp:VIP:port when absent.").Eg("web"),
		schema.Need("vip", ClientAddress().Into(&vip.Addr), "IPv6 or IPv4 address of the service."),
		schema.Optional("protocol", "tcp", schema.OneOf(topo.TCP, topo.UDP).Into(&vip.Protocol), "Transport protocol."),
		schema.Need("port", schema.WholeOf[uint16](1, 65535).Into(&vip.Port), "Port of the service.").Eg("80"),
	}
}

// pinRow has no fallback: it is named after the node.
func pinRow(role string, to *string) schema.Entry {
	return schema.Optional("pin", "", PinFolder().Into(to),
		"Directory in a BPF file system where links and flows outlive the daemon; /sys/fs/bpf/proffer/"+role+"-NAME when absent, with _ for dots.").Eg("/sys/fs/bpf/proffer/" + role + "-one")
}

// CompletePin gives a daemon without a place for pins the place of its role and name.
func CompletePin(at *string, role, name string) {
	if *at == "" {
		*at = "/sys/fs/bpf/proffer/" + role + "-" + strings.ReplaceAll(name, ".", "_") // see pin
	}
}

// VIPName names a service that has no name of its own; names have no spaces.
func VIPName(v topo.VIP) string { return strings.ReplaceAll(v.String(), " ", ":") }
