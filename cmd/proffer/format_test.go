package main

import (
	"encoding/json"
	"testing"

	"proffer/cmd/internal/cli"
	"proffer/config"
	"proffer/farm"
)

// TestFormats: each file has an example that can be used, and a schema.
func TestFormats(t *testing.T) {
	for _, f := range config.Formats() {
		code, example, stderr := call(t, "example", f.Verb)
		if code != cli.OK || stderr != "" || example != string(f.Example()) {
			t.Errorf("example %s: exit %d, %s", f.Verb, code, stderr)
		}
		code, text, stderr := call(t, "schema", f.Verb)
		var schema struct{ Properties map[string]any }
		if err := json.Unmarshal([]byte(text), &schema); code != cli.OK || err != nil || schema.Properties["control"] == nil {
			t.Errorf("schema %s: exit %d, %v, %s", f.Verb, code, err, stderr)
		}
	}
	if code, example, stderr := call(t, "example", "farm"); code != cli.OK || example != string(farm.Example()) {
		t.Errorf("example farm: exit %d, %s", code, stderr)
	}
	wantLine(t, []string{"schema"}, cli.Usage, "proffer schema takes one VERB, got 0 arguments; want one of farm, lb, agent, edge, nf\n")
	wantLine(t, []string{"example", "status"}, cli.Usage, "\"status\" has no configuration file; want one of farm, lb, agent, edge, nf\n")
}
