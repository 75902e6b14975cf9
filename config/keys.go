package config

import (
	"encoding/hex"
	"fmt"

	"proffer/schema"
	"proffer/topo"
)

// MaxKeys bounds the keys that one node accepts. A rotation needs two.
const MaxKeys = 8

// ParseLBKeys reads the file of a load balancer's signal keys; their Server is
// the master of all servers' keys. The first signs, all are accepted. Errors are
// as of ParseLB, and never repeat the file's text.
func ParseLBKeys(file string, data []byte) ([]topo.SignalKey, error) {
	return parseKeys(file, data, lbKey)
}

// ParseAgentKeys reads the file of an agent's signal keys; their Server is that
// server's own, as wire.ServerKey derives it. All else is as of ParseLBKeys.
func ParseAgentKeys(file string, data []byte) ([]topo.SignalKey, error) {
	return parseKeys(file, data, agentKey)
}

func parseKeys(file string, data []byte, table func(*topo.SignalKey) []schema.Entry) ([]topo.SignalKey, error) {
	var keys []topo.SignalKey
	doc := &schema.Document{File: file, Hidden: true}
	doc.Parse(data, keysFile(&keys, table))
	if doc.OK() {
		checkKeys(doc, keys)
	}
	if err := doc.Err(); err != nil {
		return nil, err
	}
	return keys, nil
}

func keysFile(keys *[]topo.SignalKey, table func(*topo.SignalKey) []schema.Entry) []schema.Entry {
	return []schema.Entry{schema.Need("keys", schema.Sequence(keys, 1, MaxKeys, table))}
}

func lbKey(k *topo.SignalKey) []schema.Entry    { return signalKey(k, "master") }
func agentKey(k *topo.SignalKey) []schema.Entry { return signalKey(k, "server") }

func signalKey(k *topo.SignalKey, back string) []schema.Entry {
	return []schema.Entry{
		schema.Need("id", schema.Whole(1, 255).Set(func(n int) { k.ID = uint8(n) })),
		schema.Need("farm", hexKey("32 hex digits, the same on every node").Into(&k.Farm)),
		schema.Need(back, hexKey("32 hex digits; `proffer keys` makes them").Into(&k.Server)),
	}
}

func candidateKey() schema.Kind[topo.Key] {
	return hexKey("32 hex digits, the same on every LB; make one with `openssl rand -hex 16`")
}

func hexKey(want string) schema.Kind[topo.Key] {
	return schema.TextOrNumber(want, func(s string) (key topo.Key, err error) {
		b, err := hex.DecodeString(s)
		if err != nil || len(b) != len(key) {
			return key, schema.ErrNot
		}
		return topo.Key(b), nil
	})
}

func checkKeys(d *schema.Document, keys []topo.SignalKey) {
	ids := unique[uint8]{}
	for i, k := range keys {
		ids.add(d, fmt.Sprintf("keys[%d].id", i), k.ID)
	}
}

// MarshalLBKeys writes a file that ParseLBKeys reads back as keys.
func MarshalLBKeys(keys []topo.SignalKey) []byte {
	var w writer
	w.line("# Signal keys of every load balancer. Secret. The first signs, all are accepted.")
	w.keys(keys, "master")
	return w.Bytes()
}

// MarshalAgentKeys writes a file that ParseAgentKeys reads back as keys.
func MarshalAgentKeys(keys []topo.SignalKey) []byte {
	var w writer
	w.line("# Signal keys of one server's agent. Secret. The first signs, all are accepted.")
	w.keys(keys, "server")
	return w.Bytes()
}

func (w *writer) keys(keys []topo.SignalKey, back string) {
	w.line("keys:")
	for _, k := range keys {
		w.line("  - id: %d", k.ID)
		w.line("    farm: \"%x\"", k.Farm[:])
		w.line("    %s: \"%x\"", back, k.Server[:])
	}
}
