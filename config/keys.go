package config

import (
	"encoding/hex"
	"fmt"
	"net/netip"

	"proffer/schema"
	"proffer/topo"
)

// MaxKeys bounds the keys that a node accepts. A rotation needs two.
const MaxKeys = 8

// ParseLBKeys reads the file of a load balancer's signal keys; their Server is
// the master of all servers' keys. The first signs, all are accepted. Errors are
// as of ParseLB, and never repeat the file's text.
func ParseLBKeys(file string, data []byte) ([]topo.SignalKey, error) {
	return parseKeys(file, data, lbKey, netip.Prefix{})
}

// ParseAgentKeys reads the file of an agent's signal keys; their Server is that
// server's own, as wire.ServerKey derives it. A file that names the locator of another server
// than this server is a mistake. All else is as of ParseLBKeys.
func ParseAgentKeys(file string, data []byte, server netip.Prefix) ([]topo.SignalKey, error) {
	return parseKeys(file, data, agentKey, server)
}

// parseKeys reads a file that is of a server, if it names a locator.
func parseKeys(file string, data []byte, table func(*topo.SignalKey) []schema.Entry, server netip.Prefix) ([]topo.SignalKey, error) {
	var keys []topo.SignalKey
	var of netip.Prefix
	doc := &schema.Document{File: file, Hidden: true}
	entries := keyFileOf(&keys, table)
	if server.IsValid() {
		entries = append(entries, ofServer(&of))
	}
	doc.Parse(data, entries)
	if doc.OK() {
		checkKeys(doc, keys)
	}
	if doc.OK() && of.IsValid() && of != server {
		doc.Failf("locator", "is of another server; want the file that `proffer keys server --locator %s` makes", server)
	}
	if err := doc.Err(); err != nil {
		return nil, err
	}
	return keys, nil
}

func keyFileOf(keys *[]topo.SignalKey, table func(*topo.SignalKey) []schema.Entry) []schema.Entry {
	return []schema.Entry{schema.Need("keys", schema.Sequence(keys, 1, MaxKeys, table), "The keys; the first signs.")}
}

func ofServer(at *netip.Prefix) schema.Entry {
	return schema.Optional("locator", "", Locator().Into(at), "The server that the keys are of.")
}

func lbKey(k *topo.SignalKey) []schema.Entry    { return signalKey(k, "master") }
func agentKey(k *topo.SignalKey) []schema.Entry { return signalKey(k, "server") }

func signalKey(k *topo.SignalKey, back string) []schema.Entry {
	return []schema.Entry{
		schema.Need("id", schema.WholeOf[uint8](1, 255).Into(&k.ID), "Number of the key."),
		schema.Need("farm", HexKey("32 hex digits, the same on every node").Into(&k.Farm), "Secret of the signals to servers."),
		schema.Need(back, HexKey("32 hex digits; `proffer keys` makes them").Into(&k.Server), "Secret of the signals to LBs."),
	}
}

const hexDigits = "^[0-9A-Fa-f]{32}$"

func CandidateKey() schema.Kind[topo.Key] {
	return HexKey("32 hex digits, the same on every LB; make one with `openssl rand -hex 16`")
}

func HexKey(want string) schema.Kind[topo.Key] {
	return schema.TextOrNumber(want, func(s string) (key topo.Key, err error) {
		b, err := hex.DecodeString(s)
		if err != nil || len(b) != len(key) {
			return key, schema.ErrNot
		}
		return topo.Key(b), nil
	}).Spelt(func(k topo.Key) string { return hex.EncodeToString(k[:]) }).Like(hexDigits).Eg(`"000102030405060708090a0b0c0d0e0f"`)
}

func checkKeys(d *schema.Document, keys []topo.SignalKey) {
	ids := unique[uint8]{}
	for i, k := range keys {
		ids.add(d, fmt.Sprintf("keys[%d].id", i), k.ID)
	}
}

// MarshalLBKeys writes a file that ParseLBKeys reads back as keys.
func MarshalLBKeys(keys []topo.SignalKey) []byte {
	const head = "# Signal keys of every load balancer. Secret. The first signs, all are accepted.\n"
	return append([]byte(head), schema.Write(keyFileOf(&keys, lbKey))...)
}

// MarshalAgentKeys writes the file of a server that ParseAgentKeys reads back as keys.
func MarshalAgentKeys(keys []topo.SignalKey, server netip.Prefix) []byte {
	const head = "# Signal keys of one server's agent. Secret. The first signs, all are accepted.\n"
	return append([]byte(head), schema.Write(append([]schema.Entry{ofServer(&server)}, keyFileOf(&keys, agentKey)...))...)
}

// SignalKeyRows are the keys of a signal key; back is the name of its secret towards LBs.
func SignalKeyRows(k *topo.SignalKey, back string) []schema.Entry { return signalKey(k, back) }
