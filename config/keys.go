package config

import (
	"encoding/hex"
	"fmt"

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

func parseKeys(file string, data []byte, table func(*topo.SignalKey) []entry) ([]topo.SignalKey, error) {
	var keys []topo.SignalKey
	doc := newDocument(file)
	doc.hidden = true
	doc.parse(data, keysFile(&keys, table))
	if doc.ok() {
		checkKeys(doc, keys)
	}
	if err := doc.err(); err != nil {
		return nil, err
	}
	return keys, nil
}

func keysFile(keys *[]topo.SignalKey, table func(*topo.SignalKey) []entry) []entry {
	return []entry{need("keys", sequence(keys, 1, MaxKeys, table))}
}

func lbKey(k *topo.SignalKey) []entry    { return signalKey(k, "master") }
func agentKey(k *topo.SignalKey) []entry { return signalKey(k, "server") }

func signalKey(k *topo.SignalKey, back string) []entry {
	return []entry{
		need("id", assign(whole(1, 255), func(n int) { k.ID = uint8(n) })),
		need("farm", scalar(&k.Farm, hexKey("32 hex digits, the same on every node"))),
		need(back, scalar(&k.Server, hexKey("32 hex digits; `proffer keys` makes them"))),
	}
}

func candidateKey() kind[topo.Key] {
	return hexKey("32 hex digits, the same on every LB; make one with `openssl rand -hex 16`")
}

func hexKey(want string) kind[topo.Key] {
	return kind[topo.Key]{want, asEither, func(s string) (key topo.Key, err error) {
		b, err := hex.DecodeString(s)
		if err != nil || len(b) != len(key) {
			return key, errNot
		}
		return topo.Key(b), nil
	}}
}

func checkKeys(d *document, keys []topo.SignalKey) {
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
