package config

import (
	"fmt"
	"net/netip"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"proffer/schema/schematest"
	"proffer/topo"
)

var someKeys = []topo.SignalKey{
	{ID: 7, Farm: topo.Key{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}, Server: topo.Key{16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31}},
	{ID: 255, Farm: topo.Key{32}, Server: topo.Key{48}},
}

var thisServer = netip.MustParsePrefix("5f00:0:2:1::/64")

// TestKeysOfAnotherServer: a file that another server's agent has is refused; the LB's keys
// have no server.
func TestKeysOfAnotherServer(t *testing.T) {
	other := netip.MustParsePrefix("5f00:0:2:2::/64")
	_, err := ParseAgentKeys("s2.keys", MarshalAgentKeys(someKeys, other), thisServer)
	if err == nil || !strings.Contains(err.Error(), "s2.keys:2:10: locator: is of another server; want the file that `proffer keys server --locator 5f00:0:2:1::/64` makes") {
		t.Errorf("another server's keys: %v", err)
	}
	if _, err := ParseLBKeys("lb.keys", append([]byte("locator: 5f00:0:2:1::/64\n"), MarshalLBKeys(someKeys)...)); err == nil {
		t.Error("an LB's keys are a server's")
	}
}

// asAgent makes an agent's file of a load balancer's.
func asAgent(lbKeys string) string { return strings.ReplaceAll(lbKeys, "master:", "server:") }

func TestParseKeys(t *testing.T) {
	text := string(schematest.Read(t, "keys.yaml"))
	lb, err := ParseLBKeys("keys.yaml", []byte(text))
	if err != nil || !reflect.DeepEqual(lb, someKeys) {
		t.Errorf("%v, %v", err, lb)
	}
	agent, err := ParseAgentKeys("keys.yaml", []byte(asAgent(text)), thisServer)
	if err != nil || !reflect.DeepEqual(agent, someKeys) {
		t.Errorf("%v, %v", err, agent)
	}
}

func TestMarshalKeys(t *testing.T) {
	const want = `# Signal keys of every load balancer. Secret. The first signs, all are accepted.
keys:
  - id: 7
    farm: "000102030405060708090a0b0c0d0e0f"
    master: "101112131415161718191a1b1c1d1e1f"
  - id: 255
    farm: "20000000000000000000000000000000"
    master: "30000000000000000000000000000000"
`
	if got := string(MarshalLBKeys(someKeys)); got != want {
		t.Errorf("got\n%s", got)
	}
	back, err := ParseLBKeys("written", MarshalLBKeys(someKeys))
	if err != nil || !reflect.DeepEqual(back, someKeys) {
		t.Errorf("%v, %v", err, back)
	}
	back, err = ParseAgentKeys("written", MarshalAgentKeys(someKeys, thisServer), thisServer)
	if err != nil || !reflect.DeepEqual(back, someKeys) {
		t.Errorf("%v, %v", err, back)
	}
}

// TestKeysRefuse: with the place, and without a digit of a key.
func TestKeysRefuse(t *testing.T) {
	const k = "00112233445566778899aabbccddeeff"
	for text, want := range map[string]string{
		"":                                      "keys:1:1: the file is empty; want a mapping with keys",
		k:                                       "keys:1:1: the file is text; want a mapping with keys",
		"keys:":                                 "keys:1:7: keys: is empty; want a list of 1 to 8 mappings with id, farm, master",
		"keys: []":                              "keys:1:7: keys: has 0 elements; want a list of 1 to 8 mappings with id, farm, master",
		"keys: [" + k + "]":                     "keys:1:8: keys[0]: is text; want a mapping with id, farm, master",
		"keys: {" + k + ": 1}":                  "keys:1:7: keys: is a mapping; want a list of 1 to 8 mappings with id, farm, master",
		k + ": 1":                               "keys:1:1: unknown key; want keys\nkeys:1:1: keys: is missing; want a list of 1 to 8 mappings with id, farm, master",
		"keys: [{id: 0, farm: K, master: K}]":   `keys:1:13: keys[0].id: is not a whole number from 1 to 255`,
		"keys: [{id: 256, farm: K, master: K}]": `keys:1:13: keys[0].id: is not a whole number from 1 to 255`,
		"keys: [{id: K, farm: 1, master: K}]":   "keys:1:13: keys[0].id: is not a whole number from 1 to 255\nkeys:1:53: keys[0].farm: is not 32 hex digits, the same on every node",
		"keys: [{id: 1, farm: Kf, master: K}]":  "keys:1:22: keys[0].farm: is not 32 hex digits, the same on every node",
		"keys: [{id: 1, farm: K, master: xK}]":  "keys:1:64: keys[0].master: is not 32 hex digits; `proffer keys` makes them",
		"keys: [{id: 1, farm: [K], master: K}]": "keys:1:22: keys[0].farm: is a list; want 32 hex digits, the same on every node",
		"keys: [{id: 1, farm: K, server: K}]":   "keys:1:8: keys[0].master: is missing; want 32 hex digits; `proffer keys` makes them\nkeys:1:56: keys[0]: unknown key; want id, farm, master",
		"keys:\n- id: 1\n  farm:K\n  master: K": "not YAML",
		"keys: [{id: 1, frm: K, master: K}]":    "keys:1:8: keys[0].farm: is missing; want 32 hex digits, the same on every node\nkeys:1:16: keys[0]: unknown key; did you mean farm? want id, farm, master",
		"keys:\n- {id: 9, farm: K, master: K}\n- {id: 9, farm: K, master: K}": `keys:3:8: keys[1].id: "9" is already that of keys[0].id (line 2); want each only once`,
		"keys: [{id: 1, farm: K, farm: K, master: K}]":                        "keys:1:56: keys[0].farm: is given twice; the first is at line 1",
		"keys: [{id: 1, farm: K master: K}]":                                  "keys[0].farm: is not 32 hex digits",
		"keys:\n  farm: K\n K":                                                "not YAML",
		"keys: [" + strings.Repeat("{id: 1, farm: K, master: K}, ", 9) + "]":  "keys:1:7: keys: has 9 elements; want a list of 1 to 8 mappings with id, farm, master",
		"keys: \"K\x01\"": "keys:1:40: byte 0x01 is not text; want UTF-8 without control characters",
	} {
		text = strings.ReplaceAll(text, "K", k)
		_, err := ParseLBKeys("keys", []byte(text))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s\n got %v\nwant %s", text, err, want)
			continue
		}
		wantSilence(t, err, text)
	}
	_, err := ParseAgentKeys("keys", fmt.Appendf(nil, "keys: [{id: 1, farm: %s, master: %[1]s}]", k), thisServer)
	if err == nil || !strings.Contains(err.Error(), "keys[0].server: is missing") {
		t.Errorf("a load balancer's file for an agent: %v", err)
	}
}

// wantSilence: no error repeats six or more hex digits in a row of a file.
func wantSilence(t *testing.T, err error, text string) {
	t.Helper()
	for _, digits := range regexp.MustCompile(`[0-9A-Fa-f]{6,}`).FindAllString(text, -1) {
		for i := range len(digits) - 5 {
			if strings.Contains(err.Error(), digits[i:i+6]) {
				t.Fatalf("%q is of the file, and in the error\n%v", digits[i:i+6], err)
			}
		}
	}
}

func FuzzParseKeys(f *testing.F) {
	good := string(schematest.Read(f, "keys.yaml"))
	f.Add(good)
	f.Add(asAgent(good))
	f.Add(strings.ReplaceAll(good, ": ", ":"))
	f.Add(strings.ReplaceAll(good, "7", "00112233445566778899aabbccddeeff"))
	f.Fuzz(func(t *testing.T, text string) {
		keys, err := ParseLBKeys("keys", []byte(text))
		if err != nil {
			schematest.Positioned(t, err, text)
			wantSilence(t, err, text)
			return
		}
		if again, err := ParseLBKeys("written", MarshalLBKeys(keys)); err != nil || !reflect.DeepEqual(keys, again) {
			t.Fatalf("%v\n got %v\nwant %v", err, again, keys)
		}
	})
}
