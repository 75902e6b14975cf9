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

// rowList is a place in a file whose text the rows of topo decide: all between the two groups
// of at.
type rowList struct{ file, at, text string }

// rowLists are what the schemas and docs/operators.md say of the rows.
func rowLists() []rowList {
	const lb, agent, operators = "lb.schema.json", "agent.schema.json", "../docs/operators.md"
	modes, policies, loads := names(topo.Dispatches(), topo.Dispatch.String), names(topo.Acceptances(), topo.Acceptance.Pattern), names(topo.Measures(), topo.Measure.String)
	condition := func(word, key string) string {
		return `("` + word + `": \{ "properties": \{ "` + key + `": \{ "enum": )[^}]*( \})`
	}
	otherwise := func(key string) string {
		return `("if": \{ "properties": \{ "dispatch": \{ "enum": )[^}]*( \} \} \},\s+"else": \{ "properties": \{ "` + key + `")`
	}
	return []rowList{
		{lb, described("dispatch"), meanings(topo.Dispatches(), topo.Dispatch.String, func(d topo.Dispatch) string { return d.Row().Meaning })},
		{lb, enumerated("dispatch"), schemaEnum(modes)},
		{lb, otherwise("select"), schemaEnum(split(with(topo.Dispatches(), topo.Dispatch.Offers)))},
		{lb, otherwise("fragments"), schemaEnum(split(without(topo.Dispatches(), topo.Dispatch.Tracks)))},
		{lb, otherwise("recovery"), schemaEnum(split(with(topo.Dispatches(), topo.Dispatch.Keeps)))},
		{agent, described("acceptance"), meanings(topo.Acceptances(), topo.Acceptance.Pattern, func(a topo.Acceptance) string { return a.Row().Meaning })},
		{agent, `("acceptance": \{[^}]*"pattern": "\^\()[^"]*(\)\$")`, strings.ReplaceAll(strings.Join(policies, "|"), ":C", ":(0|[1-9][0-9]{0,4})")},
		{agent, condition("then", "acceptance"), schemaEnum(split(with(topo.Acceptances(), topo.Acceptance.Adapts)))},
		{agent, described("load"), meanings(topo.Measures(), topo.Measure.String, func(m topo.Measure) string { return m.Row().Meaning })},
		{agent, enumerated("load"), schemaEnum(loads)},
		{agent, condition("if", "load"), schemaEnum(split(with(topo.Measures(), topo.Measure.Page)))},
		{agent, condition("then", "load"), schemaEnum(split(without(topo.Measures(), topo.Measure.Sockets)))},
		{operators, commented("dispatch"), strings.Join(modes, " | ")},
		{operators, commented("acceptance"), strings.Join(policies, " | ")},
		{operators, commented("load"), strings.Join(loads, " | ")},
	}
}

func described(key string) string {
	return `("` + key + `": \{\s+"description": "[^.]*\. )[^"]*(")`
}

func enumerated(key string) string {
	return `("` + key + `": \{\s+"description": "[^"]*",\s+"enum": )[^\]]*\]()`
}

func commented(key string) string {
	return `(?m)^( +` + key + `: .*# )[^;\n]*((?:;.*)?)$`
}

// TestRowsListed holds the schemas and docs/operators.md to the rows of topo; -update
// writes their lists.
func TestRowsListed(t *testing.T) {
	for _, l := range rowLists() {
		text := readFile(t, l.file)
		places := regexp.MustCompile(l.at).FindAllStringSubmatchIndex(text, -1)
		if len(places) != 1 {
			t.Errorf("%s has %d places like %s; want one", l.file, len(places), l.at)
			continue
		}
		at := places[0]
		switch got := text[at[3]:at[4]]; {
		case got == l.text:
		case !*update:
			t.Errorf("%s: run `go test ./config -update`\n got %s\nwant %s", l.file, got, l.text)
		default:
			if err := os.WriteFile(l.file, []byte(text[:at[3]]+l.text+text[at[4]:]), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// TestRowsExplained: docs/hunting.md explains every dispatch mode, acceptance policy and
// load measure.
func TestRowsExplained(t *testing.T) {
	hunting := readFile(t, "../docs/hunting.md")
	for _, d := range topo.Dispatches() {
		wantIn(t, "docs/hunting.md", hunting, fmt.Sprintf("`%s`", d))
	}
	for _, a := range topo.Acceptances() {
		wantIn(t, "docs/hunting.md", hunting, fmt.Sprintf("| `%s`", a.Pattern()))
	}
	for _, m := range topo.Measures() {
		wantIn(t, "docs/hunting.md", hunting, fmt.Sprintf("- **`%s`**", m))
	}
}

func names[T any](rows []T, name func(T) string) (all []string) {
	for _, row := range rows {
		all = append(all, name(row))
	}
	return all
}

// meanings is a sentence a row: "single: one server by hash."
func meanings[T any](rows []T, name, meaning func(T) string) string {
	return strings.Join(names(rows, func(row T) string { return name(row) + ": " + meaning(row) + "." }), " ")
}

// split undoes either.
func split(joined string) []string {
	return regexp.MustCompile(`,? or |, `).Split(joined, -1)
}

// schemaEnum is a list of names as the schemas write it.
func schemaEnum(names []string) string {
	data, _ := json.Marshal(names)
	return strings.ReplaceAll(string(data), ",", ", ")
}

func readFile(t *testing.T, name string) string {
	t.Helper()
	data, err := os.ReadFile(name)
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
