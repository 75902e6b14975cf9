package config

import (
	"bytes"
	"fmt"
	"strconv"

	"proffer/topo"
)

// MarshalLB writes a file that ParseLB reads back as lb, every default spelt
// out. lb must be valid and its servers sorted, as ParseLB returns it.
func MarshalLB(lb *topo.LB) []byte {
	var w writer
	w.node(lb.Node)
	w.line("candidate_key: \"%x\"", lb.CandidateKey[:])
	w.flowTable(lb.Flows)
	w.line("services:")
	for _, s := range lb.Services {
		w.service(s)
	}
	return w.Bytes()
}

// MarshalAgent writes a file that ParseAgent reads back as a, every default
// spelt out, so that it means the same whatever the number of CPUs. a must be
// valid, as ParseAgent returns it.
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
	w.line("node: {name: %q, locator: %s, interface: %q}", n.Name, n.Locator, n.Interface)
	w.line("control: %q", n.Control)
}

func (w *writer) flowTable(f topo.FlowTable) {
	w.line("flow_table: {entries: %d, idle: %s, linger: %s}", f.Entries, f.Idle, f.Linger)
}

func (w *writer) service(s topo.Service) {
	w.vip(s.Name, s.VIP)
	w.line("    protocol: tcp")
	w.line("    dispatch: %s", s.Dispatch)
	if s.Dispatch == topo.Hunt {
		w.line("    choices: %d", s.Choices)
	}
	w.line("    servers:")
	for _, server := range s.Servers {
		w.line("      - {name: %q, locator: %s}", server.Name, server.Locator)
	}
}

func (w *writer) offering(o topo.Offering) {
	w.vip(o.Name, o.VIP)
	switch o.Acceptance {
	case topo.Static:
		w.line("    acceptance: static:%d", o.Threshold)
	case topo.Dynamic:
		w.line("    acceptance: dynamic")
		epsilon := strconv.FormatFloat(o.Epsilon, 'f', -1, 64)
		w.line("    dynamic: {window: %d, epsilon: %s, initial: %d}", o.Window, epsilon, o.Threshold)
	default:
		w.line("    acceptance: %s", o.Acceptance)
	}
	w.line("    workers: %d", o.Workers)
	w.line("    cores: %d", o.Cores)
	w.line("    signal: %s", o.Signal)
	if o.Signal == topo.SharedMemory {
		w.line("    page: %q", o.Page)
	}
	w.line("    on_full: %s", o.OnFull)
}

func (w *writer) vip(name string, v topo.VIP) {
	w.line("  - name: %q", name)
	w.line("    vip: %s", v.Addr)
	w.line("    port: %d", v.Port)
}
