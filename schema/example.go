package schema

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Example is a complete file with a comment at every key; the keys that do not go with the rest of it
// are comments, too.
func Example(keys []Entry) []byte {
	return []byte(walk{shown: true, seen: map[string]bool{}}.mapping("", keys, ""))
}

// Examples are files that have together every key of a table with each of its examples.
func Examples(table func() []Entry) (files []string) {
	for _, picks := range picksOf("", table(), nil) {
		files = append(files, walk{picks: picks, seen: map[string]bool{}}.mapping("", table(), ""))
	}
	return files
}

// picksOf has each example of each key, with those of other keys that it needs, by their paths.
func picksOf(path string, keys []Entry, need map[string]string) (all []map[string]string) {
	for _, e := range keys {
		at, with := path+"."+e.Key, maps.Clone(need)
		if with == nil {
			with = map[string]string{}
		}
		if e.Only != nil {
			with[path+"."+e.Only.key] = e.Only.values[0]
		}
		if e.Inside != nil {
			all = append(all, picksOf(at, e.Inside, with)...)
			continue
		}
		for _, eg := range e.egs {
			picks := maps.Clone(with)
			picks[at] = eg
			all = append(all, picks)
		}
	}
	return all
}

// walk goes through a table and writes each key with an example.
type walk struct {
	picks map[string]string // of keys, by their paths
	shown bool              // with comments
	terse bool              // without the keys that do not go with the rest
	seen  map[string]bool   // mappings that stand further above
	keys  []Entry           // of the mapping
}

func (w walk) mapping(path string, keys []Entry, indent string) string {
	var b strings.Builder
	w.keys = keys
	for _, e := range keys {
		holds := e.Only.holds(keys)
		text := w.entry(path+"."+e.Key, e, indent, holds)
		if !holds {
			text = indent + "# " + strings.ReplaceAll(strings.TrimSuffix(text[len(indent):], "\n"), "\n"+indent, "\n"+indent+"# ") + "\n"
		}
		if holds || w.shown && !w.terse {
			b.WriteString(text)
		}
	}
	return b.String()
}

func (w walk) entry(at string, e Entry, indent string, holds bool) string {
	switch {
	case e.Inside == nil:
		eg := cmp.Or(w.picks[at], e.example())
		if holds {
			e.read(cursor{doc: &Document{where: map[string]position{}}}.absent(e.Key, eg))
		}
		return w.line(indent+e.Key+": "+eg, e)
	case e.list:
		return w.line(indent+e.Key+":", e) + w.elements(at, e.Inside, indent+"  ")
	default:
		return w.line(indent+e.Key+":", e) + w.mapping(at, e.Inside, indent+"  ")
	}
}

// elements has one, or one for each value of a first key that decides on others.
func (w walk) elements(at string, keys []Entry, indent string) string {
	first, path := keys[0], at+"."+keys[0].Key
	decides := slices.ContainsFunc(keys, func(e Entry) bool { return e.Only != nil && e.Only.key == first.Key })
	again := w.seen[knownKeys(keys)]
	w.seen[knownKeys(keys)] = true
	if !w.shown || !decides {
		w.shown = w.shown && !again
		return indent + "- " + strings.TrimPrefix(w.mapping(at, keys, indent+"  "), indent+"  ")
	}
	var b strings.Builder
	w.terse = true
	for _, eg := range first.egs {
		w.picks = map[string]string{path: eg}
		b.WriteString(indent + "- " + strings.TrimPrefix(w.mapping(at, keys, indent+"  "), indent+"  "))
	}
	return b.String()
}

// example is that of the published file.
func (e Entry) example() string {
	if e.stated || e.Fallback == "" {
		return e.egs[0]
	}
	return e.Fallback
}

// line ends with a comment.
func (w walk) line(text string, e Entry) string {
	if !w.shown {
		return text + "\n"
	}
	if note := e.note(w.keys, w.terse); note != "" {
		text = fmt.Sprintf("%-34s # %s", text, note)
	}
	return text + "\n"
}

// longest bounds the parts of a comment; the documents have the longer texts.
const longest = 60

// note says in short which values a key has; terse is without the others that it goes with.
func (e Entry) note(keys []Entry, terse bool) string {
	var parts []string
	short := func(text string) {
		if len(text) <= longest {
			parts = append(parts, text)
		}
	}
	if enum, ok := e.shape()["enum"].([]string); ok {
		use := slices.DeleteFunc(slices.Clone(enum), func(v string) bool { return slices.Contains(e.apart, v) })
		parts = append(parts, strings.Join(use, " | "))
	} else if _, bounds, ok := strings.Cut(e.Want, " from "); ok && e.Inside == nil {
		short(bounds)
	}
	switch {
	case e.Required:
	case e.Inside != nil || e.Fallback == "":
		parts = append(parts, "optional")
	case e.Fallback == e.example():
		parts = append(parts, "default")
	default:
		parts = append(parts, "default "+e.Fallback)
	}
	if terse {
		return strings.Join(parts, "; ")
	}
	if e.Only != nil {
		parts = append(parts, "only with "+e.Only.inShort(keys))
	}
	return strings.Join(parts, "; ")
}

// inShort is the condition without the values that are apart, if there are others.
func (c *Condition) inShort(keys []Entry) string {
	apart := c.decides(keys).apart
	use := slices.DeleteFunc(slices.Clone(c.values), func(v string) bool { return slices.Contains(apart, v) })
	if len(apart) == 0 || len(use) == 0 {
		return c.spelling
	}
	return c.key + ": " + Either(use)
}
