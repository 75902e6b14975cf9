package foreign

import (
	"reflect"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"
)

func TestPrintable(t *testing.T) {
	for _, c := range [][2]string{
		{"", ""},
		{`plain "text" \ é 日本 ±`, `plain "text" \ é 日本 ±`},
		{"\x1b]0;own\x07", `\x1b]0;own\x07`},
		{"a\r\n\tb\x00\x7f", `a\x0d\n\tb\x00\x7f`},
		{"\u009b2J", `\u009b2J`},             // CSI in one character
		{"a\u202eb\u2028", `a\u202eb\u2028`}, // the other direction, another line
		{"\xff\xc3", `\xff\xc3`},
		{"\ufffd", "\ufffd"},
		{"\U000e0041", `\U000e0041`}, // a tag, which does not show
		{"\u00a0", `\u00a0`},
	} {
		if got := Printable(c[0]); got != c[1] {
			t.Errorf("%q: got %q, want %q", c[0], got, c[1])
		}
	}
	if got := Lines("a\n\tb\x1b"); got != "a\n\tb\\x1b" {
		t.Errorf("lines: %q", got)
	}
	if got := Cut("日本\x1b語", 3); got != `日本\x1b…` {
		t.Errorf("cut: %q", got)
	}
}

func FuzzPrintable(f *testing.F) {
	f.Add("\x1b[31m\u009b\u202e\xff")
	f.Fuzz(func(t *testing.T, s string) {
		got := Printable(s)
		if !utf8.ValidString(got) || strings.ContainsFunc(got, func(r rune) bool { return !unicode.IsPrint(r) }) {
			t.Fatalf("%q became %q", s, got)
		}
		if Printable(got) != got {
			t.Fatalf("%q is not stable", got)
		}
		if plain := strings.Map(func(r rune) rune {
			if !unicode.IsPrint(r) || r == utf8.RuneError {
				return -1
			}
			return r
		}, s); plain == s && got != s {
			t.Fatalf("%q became %q", s, got)
		}
	})
}

// TestClean: texts at any depth become printable, all else stays, and the value itself is unchanged.
func TestClean(t *testing.T) {
	type leaf struct {
		Text  string
		Count int
		None  []string
	}
	type tree struct {
		Leaf  *leaf
		Lines []string
		Empty []string
		Many  []leaf
		By    map[string]uint64
		Nil   *leaf
	}
	dirty := func(s string) tree {
		return tree{&leaf{s, 3, nil}, []string{s, "b"}, []string{}, []leaf{{Text: s}}, map[string]uint64{s: 7}, nil}
	}
	v := dirty("\x1b")
	if got := Clean(v); !reflect.DeepEqual(got, dirty(`\x1b`)) {
		t.Errorf("%+v", got)
	}
	if !reflect.DeepEqual(v, dirty("\x1b")) {
		t.Errorf("the value is now %+v", v)
	}
}
