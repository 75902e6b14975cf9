package config

import (
	"bytes"
	"cmp"
	"fmt"
	"net"
	"strconv"
	"strings"

	"proffer/topo"
)

// MarshalLB writes a file that ParseLB reads back as lb, every default spelt
// out. lb must be valid and its servers sorted, as ParseLB returns it; only pin,
// embryonic and buckets may be zero, and are left to their defaults. Keys stay
// out: they come from KeyFile.
func MarshalLB(lb *topo.LB) []byte {
	var w writer
	w.node(lb.Node)
	w.given(lb.State != "", "state: %q", lb.State)
	w.line("candidate_key: \"%x\"", lb.CandidateKey[:])
	w.flowTable(lb.Flows)
	w.line("services:")
	for _, s := range lb.Services {
		w.service(s)
	}
	return w.Bytes()
}

// MarshalPools writes the pools of services, each under its VIP, as the keys of a service that
// a load balancer's file has.
func MarshalPools(services []topo.Service) []byte {
	var w writer
	for _, s := range services {
		w.line("    # %s", s.VIP)
		w.pools(s)
	}
	return w.Bytes()
}

// MarshalAgent writes a file that ParseAgent reads back as a, every default
// spelt out, so that it means the same whatever the number of CPUs. All else is
// as of MarshalLB.
func MarshalAgent(a *topo.Agent) []byte {
	var w writer
	w.node(a.Node)
	w.flowTable(a.Flows)
	w.line("services:")
	for _, o := range a.Services {
		w.offering(o)
	}
	return w.Bytes()
}

// writer builds a file line by line. Free text is quoted by %q: YAML's double
// quotes know every escape that Go writes.
type writer struct{ bytes.Buffer }

func (w *writer) line(format string, args ...any) {
	fmt.Fprintf(w, format+"\n", args...)
}

func (w *writer) node(n topo.Node) {
	w.line("node:")
	w.line("  name: %q", n.Name)
	w.line("  locator: %s", n.Locator)
	w.line("  interface: %q", n.Interface)
	w.given(n.Pin != "", "  pin: %q", n.Pin)
	if len(n.Domain) > 0 {
		w.line("  domain: %s", listed(n.Domain))
	} else {
		w.line("  domain: %s", anyDomain)
	}
	w.line("control: %q", n.Control)
	w.line("signal_keys: %q", cmp.Or(n.KeyFile, noKeys))
}

// given writes the line of a key that has a value.
func (w *writer) given(has bool, format string, args ...any) {
	if has {
		w.line(format, args...)
	}
}

// listed quotes each: a plain "::" before a comma would end a key.
func listed[T fmt.Stringer](values []T) string {
	quoted := make([]string, len(values))
	for i, v := range values {
		quoted[i] = strconv.Quote(v.String())
	}
	return "[" + strings.Join(quoted, ", ") + "]"
}

func (w *writer) flowTable(f topo.FlowTable) {
	w.line("flow_table:")
	w.line("  entries: %d", f.Entries)
	w.given(f.Embryonic != 0, "  embryonic: %d", f.Embryonic)
	w.line("  idle: %s", f.Idle)
	w.line("  linger: %s", f.Linger)
}

func (w *writer) service(s topo.Service) {
	w.vip(s.Name, s.VIP)
	w.line("    dispatch: %s", s.Dispatch)
	if s.Dispatch.Offers() {
		w.line("    select: %s", s.Select)
		w.line("    choices: %d", s.Choices)
	}
	w.given(s.Buckets != 0, "    buckets: %d", s.Buckets)
	w.line("    wire: %s", s.Wire)
	w.given(len(s.Via) > 0, "    via: %s", listed(s.Via))
	w.line("    fragments: %s", s.Fragments)
	w.given(s.Dispatch.Recovers(), "    recovery: %s", s.Recovery)
	w.given(s.Dispatch.Learns() && s.LearnEvery != 0, "    learn_every: %s", s.LearnEvery)
	w.pools(s)
}

func (w *writer) pools(s topo.Service) {
	w.line("    version: %d", s.Version)
	w.servers("    ", s.Servers)
	w.given(len(s.History) > 0, "    history:")
	for _, v := range s.History {
		w.line("      - version: %d", v.Version)
		w.servers("        ", v.Servers)
	}
}

func (w *writer) servers(indent string, servers []topo.Server) {
	if len(servers) == 0 {
		w.line("%sservers: []", indent)
		return
	}
	w.line("%sservers:", indent)
	for _, s := range servers {
		w.line("%s  - {name: %q, %s, weight: %d}", indent, s.Name, deliveryOf(&s), s.Weight)
	}
}

// deliveryOf has the keys of a server's delivery.
func deliveryOf(s *topo.Server) string {
	text := fmt.Sprintf("delivery: %s", s.Delivery)
	if s.Delivery.SRv6() {
		return text + fmt.Sprintf(", locator: %s", s.Locator)
	}
	text += fmt.Sprintf(", address: %q", s.Address)
	if s.Delivery.Tunnel() {
		text += fmt.Sprintf(", vni: %d, mac: %q", s.VNI, net.HardwareAddr(s.MAC[:]))
	}
	return text
}

func (w *writer) offering(o topo.Offering) {
	w.vip(o.Name, o.VIP)
	w.line("    wire: %s", o.Wire)
	w.line("    acceptance: %s", o.Acceptance.Spell(o.Threshold))
	if o.Acceptance.Adapts() {
		epsilon := strconv.FormatFloat(o.Epsilon, 'f', -1, 64)
		w.line("    dynamic: {window: %d, epsilon: %s, initial: %d}", o.Window, epsilon, o.Threshold)
	}
	w.line("    workers: %d", o.Workers)
	w.line("    cores: %d", o.Cores)
	w.line("    load: %s", o.Load())
	w.given(o.From != "", "    load_from: %q", o.From)
	w.given(o.Of != "", "    load_of: %q", o.Of)
	if o.Load().File() {
		w.line("    page: %q", o.Page)
		w.given(o.PageOwner != "", "    page_owner: %q", o.PageOwner)
		w.given(o.PageGroup != "", "    page_group: %q", o.PageGroup)
		w.given(o.PageMode != 0, "    page_mode: \"%04o\"", o.PageMode)
	}
	w.line("    on_full: %s", o.OnFull)
	w.owner(o)
}

func (w *writer) owner(o topo.Offering) {
	if o.Owner == topo.Netns {
		w.line("    owner: %q", o.Owner.String()+" "+o.Netns)
		return
	}
	w.line("    owner: %s", o.Owner)
	w.given(o.MAC != topo.MAC{}, "    mac: %q", net.HardwareAddr(o.MAC[:]))
}

func (w *writer) vip(name string, v topo.VIP) {
	w.line("  - name: %q", name)
	w.line("    vip: %s", v.Addr)
	w.line("    protocol: %s", v.Protocol)
	w.line("    port: %d", v.Port)
}
