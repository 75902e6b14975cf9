package config

import (
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"proffer/topo"
)

// TestRows holds the schemas and the documents to the rows of topo: each names
// every dispatch mode, acceptance policy and load measure.
func TestRows(t *testing.T) {
	hunting, operators := readDoc(t, "hunting.md"), readDoc(t, "operators.md")
	var modes, policies, loads []string
	for _, d := range topo.Dispatches() {
		modes = append(modes, d.String())
		wantIn(t, "lb.schema.json", string(LBSchema), fmt.Sprintf("%s: %s", d, d.Row().Meaning))
		wantIn(t, "docs/hunting.md", hunting, fmt.Sprintf("`%s`", d))
	}
	for _, a := range topo.Acceptances() {
		policies = append(policies, a.Pattern())
		wantIn(t, "agent.schema.json", string(AgentSchema), fmt.Sprintf("%s: %s", a.Pattern(), a.Row().Meaning))
		wantIn(t, "docs/hunting.md", hunting, fmt.Sprintf("| `%s`", a.Pattern()))
	}
	for _, m := range topo.Measures() {
		loads = append(loads, m.String())
		wantIn(t, "agent.schema.json", string(AgentSchema), fmt.Sprintf("%s: %s", m, m.Row().Meaning))
		wantIn(t, "docs/hunting.md", hunting, fmt.Sprintf("- **`%s`**", m))
	}
	for key, names := range map[string][]string{"dispatch": modes, "acceptance": policies, "load": loads} {
		line := regexp.MustCompile(`(?m)^ +` + key + `: .*# ` + regexp.QuoteMeta(strings.Join(names, " | ")) + `(;.*)?$`)
		if !line.MatchString(operators) {
			t.Errorf("docs/operators.md does not list %s behind %s", strings.Join(names, " | "), key)
		}
	}
}

// TestRowsDecideKeys: the schemas allow a key with the values that the rows allow it with.
func TestRowsDecideKeys(t *testing.T) {
	offers := schemaEnum(with(topo.Dispatches(), topo.Dispatch.Offers))
	signals := schemaEnum(with(topo.Dispatches(), topo.Dispatch.Signals))
	if offers != signals {
		t.Errorf("lb.schema.json has a single condition for modes that offer %s and modes that signal %s", offers, signals)
	}
	wantIn(t, "lb.schema.json", string(LBSchema), `"if": { "properties": { "dispatch": { "enum": `+offers+` } } }`)
	adapts := schemaEnum(with(topo.Acceptances(), topo.Acceptance.Adapts))
	wantIn(t, "agent.schema.json", string(AgentSchema), `"then": { "properties": { "acceptance": { "enum": `+adapts+` } } }`)
	pages := schemaEnum(with(topo.Measures(), topo.Measure.Page))
	wantIn(t, "agent.schema.json", string(AgentSchema), `"if": { "properties": { "load": { "enum": `+pages+` } }`)
	elsewhere := schemaEnum(without(topo.Measures(), topo.Measure.Sockets))
	wantIn(t, "agent.schema.json", string(AgentSchema), `"then": { "properties": { "load": { "enum": `+elsewhere+` } } }`)
}

// schemaEnum is a list of names, which either joined, as the schemas write it.
func schemaEnum(joined string) string {
	data, _ := json.Marshal(regexp.MustCompile(`,? or |, `).Split(joined, -1))
	return strings.ReplaceAll(string(data), ",", ", ")
}

func readDoc(t *testing.T, name string) string {
	t.Helper()
	data, err := os.ReadFile("../docs/" + name)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func wantIn(t *testing.T, name, text, want string) {
	t.Helper()
	if !strings.Contains(text, want) {
		t.Errorf("%s has no %s", name, want)
	}
}
