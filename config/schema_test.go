package config

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"proffer/topo"
)

// TestSchemas walks each published schema beside the parser's tables: the same
// keys, the same required ones, the same defaults, and a description of all.
func TestSchemas(t *testing.T) {
	for name, c := range map[string]struct {
		schema []byte
		keys   []entry
	}{
		"lb":    {LBSchema, lbFile(new(topo.LB))},
		"agent": {AgentSchema, agentFile(new(topo.Agent))},
		"farm":  {FarmSchema, farmFile(new(Farm))},
	} {
		var root schemaNode
		if err := json.Unmarshal(c.schema, &root); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		w := schemaWalk{t, root.Defs}
		w.mapping(name, root, c.keys)
	}
}

type schemaNode struct {
	Ref                  string                `json:"$ref"`
	Defs                 map[string]schemaNode `json:"$defs"`
	Description          string
	Type                 any
	Default              any
	Enum                 []string
	Minimum, Maximum     *float64
	Required             []string
	AdditionalProperties *bool
	Properties           map[string]schemaNode
	Items                *schemaNode
	MinItems, MaxItems   int
}

type schemaWalk struct {
	*testing.T
	defs map[string]schemaNode
}

// resolve follows $ref, beside which only a description and a default stand.
func (w schemaWalk) resolve(n schemaNode) schemaNode {
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

func (w schemaWalk) mapping(path string, n schemaNode, keys []entry) {
	if n.AdditionalProperties == nil || *n.AdditionalProperties {
		w.Errorf("%s: the schema lets unknown keys pass", path)
	}
	var known, required []string
	for _, e := range keys {
		known = append(known, e.key)
		if e.required && e.only == nil {
			required = append(required, e.key)
		}
		if property, ok := n.Properties[e.key]; ok {
			w.property(path+"."+e.key, w.resolve(property), e)
		}
	}
	w.same(path+": keys", slices.Collect(maps.Keys(n.Properties)), known)
	w.same(path+": required", n.Required, required)
}

func (w schemaWalk) same(path string, schema, parser []string) {
	slices.Sort(schema)
	slices.Sort(parser)
	if !slices.Equal(schema, parser) {
		w.Errorf("%s: schema %v, parser %v", path, schema, parser)
	}
}

func (w schemaWalk) property(path string, n schemaNode, e entry) {
	if n.Description == "" {
		w.Errorf("%s: no description", path)
	}
	if got := spelling(n.Default); got != e.fallback {
		w.Errorf("%s: default is %q in the schema, %q in the parser", path, got, e.fallback)
	}
	if want := n.want(); !strings.HasPrefix(e.want, want) {
		w.Errorf("%s: schema wants %q, parser %q", path, want, e.want)
	}
	if n.Items != nil && e.inside != nil {
		w.mapping(path+"[]", w.resolve(*n.Items), e.inside)
	} else if e.inside != nil {
		w.mapping(path, n, e.inside)
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
func (n schemaNode) want() string {
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
