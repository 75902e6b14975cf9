package schema

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
)

// Publish is the JSON Schema (draft 2020-12) of a file, for editors. It says less than the parser:
// mistakes that no single value shows pass it.
func Publish(title, description string, keys []Entry) []byte {
	s := shapeOf(keys)
	s["$schema"], s["title"], s["description"] = "https://json-schema.org/draft/2020-12/schema", title, description
	text, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		panic("schema: " + err.Error()) // our own table is wrong
	}
	return append(text, '\n')
}

// shape is a JSON Schema.
type shape map[string]any

// shapeOf is the schema of a mapping.
func shapeOf(keys []Entry) shape {
	properties, required := shape{}, []string{}
	for _, e := range keys {
		p := maps.Clone(e.shape())
		p["description"] = e.Description()
		if v, ok := e.fallback(); ok {
			p["default"] = v
		}
		properties[e.Key] = p
		if e.Required && e.Only == nil {
			required = append(required, e.Key)
		}
	}
	s := shape{"type": "object", "additionalProperties": false, "properties": properties, "required": required}
	if rules := rulesOf(keys); len(rules) > 0 {
		s["allOf"] = rules
	}
	if names := alternatives(keys); names != nil {
		s["oneOf"] = eachRequired(names)
	}
	return s
}

// Description is what a key means, and with which others it goes.
func (e Entry) Description() string {
	text := e.Meaning
	for _, v := range e.told() {
		text += fmt.Sprintf(" %s: %s.", v.Value, e.mark(v))
	}
	return text + e.only()
}

func (e Entry) told() []Told {
	if e.tells == nil {
		return nil
	}
	return e.tells()
}

// mark is the meaning of a value, which says if it is apart.
func (e Entry) mark(v Told) string {
	if slices.Contains(e.apart, v.Value) {
		return e.why + ", " + v.Meaning
	}
	return v.Meaning
}

func (e Entry) only() string {
	if e.Only == nil {
		return ""
	}
	return " Only with " + e.Only.spelling + "."
}

// fallback is the default as JSON has it.
func (e Entry) fallback() (v any, ok bool) {
	switch {
	case e.Fallback == "":
		return nil, false
	case e.Inside != nil:
		return shape{}, true
	case e.shape()["type"] == "integer", e.shape()["type"] == "number":
		return json.Number(e.Fallback), true
	default:
		return e.Fallback, true
	}
}

// rulesOf has a rule a condition: the keys that must be there while it holds, and those that must not
// be there else.
func rulesOf(keys []Entry) (rules []shape) {
	of := map[string]bool{}
	for _, e := range keys {
		if e.Only == nil || of[e.Only.spelling] {
			continue
		}
		of[e.Only.spelling] = true
		rules = append(rules, e.Only.rule(keys))
	}
	return rules
}

func (c *Condition) rule(keys []Entry) shape {
	needed, barred := []string{}, shape{}
	for _, e := range keys {
		if e.Only != nil && e.Only.spelling == c.spelling {
			barred[e.Key] = false
			if e.Required {
				needed = append(needed, e.Key)
			}
		}
	}
	var enum []any
	for _, v := range c.values {
		if enum = append(enum, v); c.decides(keys).many {
			enum = append(enum, []string{v})
		}
	}
	when := shape{"properties": shape{c.keys[0]: shape{"enum": enum}}}
	if c.given {
		when = shape{"anyOf": eachRequired(c.keys)}
	} else if !slices.Contains(c.values, c.decides(keys).Fallback) {
		when["required"] = c.keys
	}
	rule := shape{"if": when, "else": shape{"properties": barred}}
	if len(needed) > 0 {
		rule["then"] = shape{"required": needed}
	}
	return rule
}

func eachRequired(names []string) (all []shape) {
	for _, name := range names {
		all = append(all, shape{"required": []string{name}})
	}
	return all
}

func listShape(items shape, fewest, most int) shape {
	return shape{"type": "array", "minItems": fewest, "maxItems": most, "items": items}
}
