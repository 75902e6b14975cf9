package schema

import (
	"cmp"
	"fmt"
	"strings"
)

// Table is the keys as a table in Markdown.
func Table(keys []Entry) string {
	return "| key | values | default | meaning |\n|---|---|---|---|\n" + rows("", keys, map[string]string{})
}

// rows leaves out the keys of a mapping that stood somewhere before.
func rows(path string, keys []Entry, before map[string]string) string {
	var b strings.Builder
	for _, e := range keys {
		at, want, meaning := path+e.Key, e.Want, e.Meaning+e.only()
		if e.differs {
			meaning += " Keys of such a mapping: " + knownKeys(e.Inside) + "."
		}
		first, again := before[knownKeys(e.Inside)]
		if e.tells != nil {
			want = "one of"
		} else if e.Inside != nil {
			want, _, _ = strings.Cut(want, " with ")
		}
		if again && e.Inside != nil {
			meaning += " Its keys are those of `" + first + "`."
		}
		fallback := cmp.Or(e.Fallback, "–")
		if e.Required {
			fallback = "required"
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", at, cell(brief(want)), cell(fallback), cell(meaning))
		for _, v := range e.told() {
			fmt.Fprintf(&b, "| | `%s` | | %s |\n", cell(v.Value), cell(e.mark(v)))
		}
		if e.differs {
			continue
		}
		if e.Inside == nil || again {
			continue
		}
		before[knownKeys(e.Inside)] = at
		b.WriteString(rows(at+e.below(), e.Inside, before))
	}
	return b.String()
}

// brief leaves out of a row's values what its example or its meaning shows.
func brief(want string) string {
	for _, article := range []string{"a whole number from ", "a number from ", "a duration from ", "one of ", "the absolute path of ", "the name of "} {
		want = strings.TrimPrefix(want, article)
	}
	for _, behind := range []string{", such as ", " such as ", "; make one with ", " of 1 to 63 letters"} {
		want, _, _ = strings.Cut(want, behind)
	}
	return want
}

// below stands between the key and those inside.
func (e Entry) below() string {
	switch {
	case e.names != nil:
		return ".NAME."
	case e.list:
		return "[]."
	}
	return "."
}

func cell(text string) string { return strings.ReplaceAll(text, "|", `\|`) }
