package schematest

import (
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	"proffer/schema"
)

// Published walks a JSON Schema beside the parser's table: the same keys, the same
// required ones, the same defaults, and a description of all.
func Published(t testing.TB, name string, published []byte, keys []schema.Entry) {
	t.Helper()
	var root node
	if err := json.Unmarshal(published, &root); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	walk{t, root.Defs}.mapping(name, root, keys)
}

// Keys: the text has each key of the table.
func Keys(t testing.TB, where, text string, keys []schema.Entry) {
	t.Helper()
	for _, e := range keys {
		if !regexp.MustCompile(`[{ \n]` + e.Key + `:`).MatchString("\n" + text) {
			t.Errorf("%s does not have %s", where, e.Key)
		}
		Keys(t, where, text, e.Inside)
	}
}

type node struct {
	Ref                  string          `json:"$ref"`
	Defs                 map[string]node `json:"$defs"`
	Description          string
	Type                 any
	Default              any
	Enum                 []string
	Minimum, Maximum     *float64
	Required             []string
	AdditionalProperties *bool
	Properties           map[string]node
	Items                *node
	MinItems, MaxItems   int
}

type walk struct {
	testing.TB
	defs map[string]node
}

// resolve follows $ref, beside which only a description and a default stand.
func (w walk) resolve(n node) node {
	if n.Ref == "" {
		return n
	}
	target, ok := w.defs[strings.TrimPrefix(n.Ref, "#/$defs/")]
	if !ok {
		w.Fatalf("%s is not defined", n.Ref)
	}
	if n.Description != "" {
		target.Description = n.Description
	}
	target.Default = n.Default
	return target
}

func (w walk) mapping(path string, n node, keys []schema.Entry) {
	if n.AdditionalProperties == nil || *n.AdditionalProperties {
		w.Errorf("%s: the schema lets unknown keys pass", path)
	}
	var known, required []string
	for _, e := range keys {
		known = append(known, e.Key)
		if e.Required && e.Only == nil {
			required = append(required, e.Key)
		}
		if property, ok := n.Properties[e.Key]; ok {
			w.property(path+"."+e.Key, w.resolve(property), e)
		}
	}
	w.same(path+": keys", slices.Collect(maps.Keys(n.Properties)), known)
	w.same(path+": required", n.Required, required)
}

func (w walk) same(path string, published, parser []string) {
	slices.Sort(published)
	slices.Sort(parser)
	if !slices.Equal(published, parser) {
		w.Errorf("%s: schema %v, parser %v", path, published, parser)
	}
}

func (w walk) property(path string, n node, e schema.Entry) {
	if n.Description == "" {
		w.Errorf("%s: no description", path)
	}
	if got := spelling(n.Default); got != e.Fallback {
		w.Errorf("%s: default is %q in the schema, %q in the parser", path, got, e.Fallback)
	}
	if want := n.want(); !strings.HasPrefix(e.Want, want) || n.Enum != nil && e.Want != want {
		w.Errorf("%s: schema wants %q, parser %q", path, want, e.Want)
	}
	if n.Items != nil && e.Inside != nil {
		w.mapping(path+"[]", w.resolve(*n.Items), e.Inside)
	} else if e.Inside != nil {
		w.mapping(path, n, e.Inside)
	}
}

// spelling is a default as a user would write it.
func spelling(v any) string {
	switch v := v.(type) {
	case nil:
		return ""
	case map[string]any:
		return "{}"
	case float64:
		text, _ := json.Marshal(v)
		return string(text)
	default:
		return fmt.Sprint(v)
	}
}

// want is the beginning of the parser's error, where the schema states it.
func (n node) want() string {
	switch {
	case n.Enum != nil:
		return "one of " + strings.Join(n.Enum, ", ")
	case n.Items != nil && n.Items.Type == "string":
		return fmt.Sprintf("a list of %d to %d, each ", n.MinItems, n.MaxItems)
	case n.Items != nil:
		return fmt.Sprintf("a list of %d to %d mappings", n.MinItems, n.MaxItems)
	case n.Minimum != nil && n.Type == "number":
		return fmt.Sprintf("a number from %v to %v", *n.Minimum, *n.Maximum)
	case n.Minimum != nil:
		return fmt.Sprintf("a whole number from %.0f to %.0f", *n.Minimum, *n.Maximum)
	default:
		return ""
	}
}
