package clitest

import (
	"encoding/json"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"proffer/cmd/internal/cli"
)

// WantFields demands that the help of a verb names every field of the JSON of v,
// at any depth.
func (p Program) WantFields(t *testing.T, v any, verb ...string) {
	t.Helper()
	code, text, stderr := p.Call(t, append([]string{"help"}, verb...)...)
	if code != cli.OK || stderr != "" {
		t.Fatalf("help %q: exit %d, stderr %q", verb, code, stderr)
	}
	names := map[string]bool{}
	addFields(names, reflect.TypeOf(v))
	if len(names) == 0 {
		t.Fatalf("%T has no field: nothing was checked", v)
	}
	for name := range names {
		if !regexp.MustCompile(`\b` + name + `\b`).MatchString(text) {
			t.Errorf("help %s does not name the field %s of --json", strings.Join(verb, " "), name)
		}
	}
}

func addFields(names map[string]bool, t reflect.Type) {
	switch t.Kind() {
	case reflect.Pointer, reflect.Slice, reflect.Map:
		addFields(names, t.Elem())
	case reflect.Struct:
		if t.Implements(reflect.TypeFor[json.Marshaler]()) {
			return
		}
		for i := range t.NumField() {
			f := t.Field(i)
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			if name == "-" || !f.IsExported() {
				continue
			}
			if name != "" {
				names[name] = true
			}
			addFields(names, f.Type)
		}
	}
}
