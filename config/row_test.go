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

// rowLists are what the schemas and docs/operate/farm.md say of the rows.
func rowLists() []rowList {
	const lb, agent, operators = "lb.schema.json", "agent.schema.json", "../docs/operate/farm.md"
	modes, policies, loads := names(topo.Dispatches(), topo.Dispatch.String), names(topo.Acceptances(), topo.Acceptance.Pattern), names(topo.Loads(), topo.Load.String)
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
		{lb, otherwise("recovery"), schemaEnum(split(with(topo.Dispatches(), topo.Dispatch.Recovers)))},
		{lb, otherwise("learn_every"), schemaEnum(split(with(topo.Dispatches(), topo.Dispatch.Learns)))},
		{lb, described("delivery"), meanings(topo.Deliveries(), topo.Delivery.String, func(d topo.Delivery) string { return d.Row().Meaning })},
		{lb, enumerated("delivery"), schemaEnum(names(topo.Deliveries(), topo.Delivery.String))},
		{lb, delivered("locator"), schemaEnum(split(with(topo.Deliveries(), topo.Delivery.SRv6)))},
		{lb, delivered("address"), schemaEnum(split(with(topo.Deliveries(), topo.Delivery.Addressed)))},
		{lb, delivered("vni"), schemaEnum(split(with(topo.Deliveries(), topo.Delivery.Tunnel)))},
		{agent, described("acceptance"), meanings(topo.Acceptances(), topo.Acceptance.Pattern, func(a topo.Acceptance) string { return a.Row().Meaning })},
		{agent, `("acceptance": \{[^}]*"pattern": "\^\()[^"]*(\)\$")`, strings.ReplaceAll(strings.Join(policies, "|"), ":C", ":(0|[1-9][0-9]{0,4})")},
		{agent, condition("then", "acceptance"), schemaEnum(split(with(topo.Acceptances(), topo.Acceptance.Adapts)))},
		{agent, described("load"), meanings(topo.Loads(), topo.Load.String, topo.Load.Meaning)},
		{agent, enumerated("load"), schemaEnum(loads)},
		{agent, loading(`"then": \{ "required": \["page"\] \}`), schemaEnum(split(with(topo.Loads(), topo.Load.File)))},
		{agent, loading(`"else": \{ "properties": \{ "load_from": false`), schemaEnum(split(with(topo.Loads(), topo.Load.From)))},
		{agent, loading(`"then": \{ "required": \["load_from"\] \}`), schemaEnum(split(with(topo.Loads(), topo.Load.FromNeeded)))},
		{agent, loading(`"else": \{ "properties": \{ "load_of": false`), schemaEnum(split(with(topo.Loads(), topo.Load.Of)))},
		{agent, loading(`"then": \{ "required": \["load_of"\] \}`), schemaEnum(split(with(topo.Loads(), topo.Load.OfNeeded)))},
		{agent, condition("then", "load"), schemaEnum(split(without(topo.Loads(), topo.Load.Sockets)))},
		{operators, commented("dispatch"), strings.Join(modes, " | ")},
		{operators, `(?m)(#     delivery: )[^;\n]*(;.*)$`, strings.Join(names(topo.Deliveries(), topo.Delivery.String), " | ")},
		{operators, commented("acceptance"), strings.Join(policies, " | ")},
		{operators, commented("load"), strings.Join(loads, " | ")},
	}
}

// delivered is the list of deliveries that need a key.
func delivered(key string) string {
	return `("if": \{ "properties": \{ "delivery": \{ "enum": )[^}]*( \} \}(?:, "required": \["delivery"\])? \},\s+"then": \{ "required": \["` + key + `"\])`
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

// loading is the list of loads that a rule of the schema is about.
func loading(rule string) string {
	return `("if": \{ "properties": \{ "load": \{ "enum": )[^}]*( \} \}, "required": \["load"\] \},\s+` + rule + `)`
}

// TestRowsListed holds the schemas and docs/operate/farm.md to the rows of topo; -update
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

// TestRowsExplained: docs/design/choosers.md explains every dispatch mode, docs/design/hunting.md every
// acceptance policy and load measure.
func TestRowsExplained(t *testing.T) {
	choosers, hunting := readFile(t, "../docs/design/choosers.md"), readFile(t, "../docs/design/hunting.md")
	for _, d := range topo.Dispatches() {
		wantIn(t, "docs/design/choosers.md", choosers, fmt.Sprintf("| `%s`", d))
	}
	for _, a := range topo.Acceptances() {
		wantIn(t, "docs/design/hunting.md", hunting, fmt.Sprintf("| `%s`", a.Pattern()))
	}
	for _, l := range topo.Loads() {
		wantIn(t, "docs/design/hunting.md", hunting, fmt.Sprintf("- **`%s`**", l))
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
