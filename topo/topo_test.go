package topo

import (
	"reflect"
	"testing"
)

// TestNames: every value of the enums of C has a name in Go, which no second value has.
func TestNames(t *testing.T) {
	type name struct {
		kind reflect.Type
		text string
	}
	seen := map[name]bool{}
	for _, v := range named {
		is := name{kind: reflect.TypeOf(v), text: v.String()}
		if is.text == "" || seen[is] {
			t.Errorf("%#v has the name %q", v, is.text)
		}
		seen[is] = true
	}
}
