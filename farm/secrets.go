package farm

import (
	"encoding/hex"
	"fmt"

	"proffer/config"
	"proffer/schema"
	"proffer/topo"
	"proffer/wire"
)

// Secrets are the keys of a farm as one node has them. A server's are derived for it alone.
type Secrets struct {
	Farm      string
	Node      string // the server that they are of; empty: an LB, an edge LB or an nf
	Candidate topo.Key
	Signals   []topo.SignalKey // the first signs; none: signals carry no tag
	Flow      topo.Key         // of edge LBs
	Report    *topo.Key        // of edge LBs and nfs
}

func secretTable(s *Secrets, server bool) []schema.Entry {
	rows := []schema.Entry{
		schema.Need("farm", schema.Name().Into(&s.Farm), "The farm that the secrets are of.").Eg("shop"),
	}
	back := "master"
	if server {
		back = "server"
		rows = append(rows, schema.Need("node", schema.Name().Into(&s.Node), "The server that the keys are derived for.").Eg("s1"))
	} else {
		rows = append(rows,
			schema.Optional("candidate_key", "", key("32 hex digits, the same on every LB").Secret(&s.Candidate), "Secret that decides every list of candidates; never changed while flows live."),
			schema.Optional("flow_key", "", key("32 hex digits, the same on every edge LB").Secret(&s.Flow), "Secret of the digests of flows at edge LBs."),
			schema.Optional("report_key", "", config.ReportKey().Secret(&s.Report), "Secret of the reports of nfs. Without it they report nothing."))
	}
	signals := schema.Sequence(&s.Signals, 0, config.MaxKeys, func(k *topo.SignalKey) []schema.Entry { return config.SignalKeyRows(k, back) })
	return append(rows, schema.Optional("signals", "", signals, "Keys that sign and check signals; the first signs. An empty list: signals carry no tag."))
}

// key is one that may be absent, which is the zero key.
func key(want string) schema.Kind[topo.Key] {
	return config.HexKey(want).Spelt(func(k topo.Key) string {
		if k == (topo.Key{}) {
			return ""
		}
		return hex.EncodeToString(k[:])
	})
}

// ParseSecrets reads a file of secrets for a node of a farm. The error never repeats the file's text.
func ParseSecrets(file string, data []byte, f *Farm, n *Node) (*Secrets, error) {
	s := new(Secrets)
	doc := &schema.Document{File: file, Hidden: true}
	doc.Parse(data, secretTable(s, n.Role() == Server))
	if doc.OK() {
		checkSecrets(doc, s, f, n)
	}
	if err := doc.Err(); err != nil {
		return nil, err
	}
	return s, nil
}

func checkSecrets(d *schema.Document, s *Secrets, f *Farm, n *Node) {
	if s.Farm != f.Name {
		d.Failf("farm", "is of another farm; want the secrets of %s", f.Name)
	}
	if s.Node != "" && s.Node != n.Name {
		d.Failf("node", "is of another server; want the secrets of %s", n.Name)
	}
	ids := map[uint8]int{}
	for i, k := range s.Signals {
		at := fmt.Sprintf("signals[%d].id", i)
		if first, twice := ids[k.ID]; twice {
			d.Failf(at, "is already that of signals[%d]; want each only once", first)
		}
		ids[k.ID] = i
	}
	lacks := func(key string) { d.Failf(key, "is missing; want 32 hex digits: `proffer init` makes them") }
	switch n.Role() {
	case LB:
		if s.Candidate == (topo.Key{}) {
			lacks("candidate_key")
		}
	case Edge:
		if s.Flow == (topo.Key{}) {
			lacks("flow_key")
		}
	}
}

// Of are the secrets that a node gets from those of the farm: no node has a key that it does not need.
func (s *Secrets) Of(n *Node) *Secrets {
	own := &Secrets{Farm: s.Farm}
	switch n.Role() {
	case LB:
		own.Candidate, own.Signals = s.Candidate, s.Signals
	case Server:
		own.Node = n.Name
		for _, k := range s.Signals {
			k.Server = wire.ServerKey(k.Server, n.Locator)
			own.Signals = append(own.Signals, k)
		}
	case Edge:
		own.Flow, own.Report = s.Flow, s.Report
	case NF:
		own.Report = s.Report
	}
	return own
}

// MarshalSecrets writes a file that ParseSecrets reads back.
func MarshalSecrets(s *Secrets) []byte {
	head := fmt.Sprintf("# Secrets of farm %s, for its LBs. Readable by root alone.\n", s.Farm)
	if s.Node != "" {
		head = fmt.Sprintf("# Secrets of farm %s, for server %s alone. Readable by root alone.\n", s.Farm, s.Node)
	}
	return append([]byte(head), schema.WriteShort(secretTable(s, s.Node != ""))...)
}
