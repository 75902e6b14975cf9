package topo

import (
	"reflect"
	"strings"
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

// TestMode: `proffer status` has the number of servers in words that fit it.
func TestMode(t *testing.T) {
	for _, c := range []struct {
		dispatch Dispatch
		servers  int
		want     string
	}{
		{Single, 1, "single, 1 server"},
		{Single, 3, "single, 3 servers"},
		{Hunt, 3, "hunt, choices 2, 3 servers"},
	} {
		s := Service{Dispatch: c.dispatch, Choices: 2, Servers: make([]Server, c.servers)}
		if got := s.Mode(); got != c.want {
			t.Errorf("%q, want %q", got, c.want)
		}
	}
}

// TestModesForUse: an operator meets four dispatch modes.
func TestModesForUse(t *testing.T) {
	var use []string
	for _, d := range Dispatches() {
		if !d.Comparison() {
			use = append(use, d.String())
		}
	}
	if got := strings.Join(use, " "); got != "single hunt stateless learned" {
		t.Errorf("for use: %s", got)
	}
}
