package schematest

import (
	"bytes"
	"maps"
	"slices"
	"testing"

	"github.com/goccy/go-yaml"
	"github.com/santhosh-tekuri/jsonschema/v6"

	"proffer/schema"
)

// Valid holds a JSON Schema to its table: it lets each example of each key pass, and no file that has
// a key more, lacks a key that it needs, or has a key with another type. It returns the validator.
func Valid[T any](t *testing.T, name string, published []byte, table func(*T) []schema.Entry) (validate func(file string) error) {
	t.Helper()
	s := compiled(t, name, published)
	validate = Validator(t, name, published)
	changed := 0
	for _, file := range schema.Examples(func() []schema.Entry { return table(new(T)) }) {
		var value map[string]any
		if err := yaml.Unmarshal([]byte(file), &value); err != nil {
			t.Fatal(err)
		}
		if err := validate(file); err != nil {
			t.Errorf("%s: %v\n%s", name, err, file)
		}
		spoil(value, table(new(T)), func(how string) {
			changed++
			if s.Validate(value) == nil {
				t.Errorf("%s passes with %s\n%s", name, how, file)
			}
		})
	}
	if changed == 0 {
		t.Errorf("%s: no file was changed", name)
	}
	return validate
}

// Validator validates files by a JSON Schema.
func Validator(t *testing.T, name string, published []byte) (validate func(file string) error) {
	t.Helper()
	s := compiled(t, name, published)
	return func(file string) error {
		var value any
		if err := yaml.Unmarshal([]byte(file), &value); err != nil {
			t.Fatal(err)
		}
		return s.Validate(value)
	}
}

func compiled(t *testing.T, name string, published []byte) *jsonschema.Schema {
	t.Helper()
	text, err := jsonschema.UnmarshalJSON(bytes.NewReader(published))
	if err != nil {
		t.Fatal(err)
	}
	compiler := jsonschema.NewCompiler()
	if err := compiler.AddResource(name, text); err != nil {
		t.Fatal(err)
	}
	s, err := compiler.Compile(name)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return s
}

// spoil makes the mistakes in turn in a mapping, calls try with each and takes it back.
func spoil(m map[string]any, keys []schema.Entry, try func(how string)) {
	m["unheard-of"] = 1
	try("a key more")
	delete(m, "unheard-of")
	for _, key := range slices.Sorted(maps.Keys(m)) {
		e := keys[slices.IndexFunc(keys, func(e schema.Entry) bool { return e.Key == key })]
		was := m[key]
		m[key] = []bool{true}
		try("true in a list as " + key)
		if delete(m, key); e.Required {
			try("no " + key)
		}
		m[key] = was
		switch inner := was.(type) {
		case map[string]any:
			if !e.Named() {
				spoil(inner, e.Inside, try)
				break
			}
			for _, v := range inner {
				spoil(v.(map[string]any), e.Inside, try)
			}
		case []any:
			for _, v := range inner {
				if element, ok := v.(map[string]any); ok {
					spoil(element, e.Inside, try)
				}
			}
		}
	}
}
