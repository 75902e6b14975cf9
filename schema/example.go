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
		for only := e.Only; only != nil; only = only.decides(keys).Only {
			with[path+"."+only.keys[0]] = only.value(keys)
		}
		if e.names != nil {
			at += "." + e.names[0]
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
	chosen := w.alternative(path, keys)
	for _, e := range keys {
		if e.either && e.Key != chosen {
			continue
		}
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
	case e.differs && w.shown:
		first := e.Inside[0].egs[0]
		return w.line(fmt.Sprintf("%s%s: [%s]", indent, e.Key, first), e) + fmt.Sprintf("%s# … or {%s: %s, …} with keys that are the element's own: %s\n", indent, e.Inside[0].Key, first, knownKeys(e.Inside[1:]))
	case e.names != nil:
		return w.line(indent+e.Key+":", e) + w.named(at, e, indent+"  ")
	case e.list:
		return w.line(indent+e.Key+":", e) + w.elements(at, e.Inside, indent+"  ")
	default:
		return w.line(indent+e.Key+":", e) + w.mapping(at, e.Inside, indent+"  ")
	}
}

// alternative is that picked, or the first.
func (w walk) alternative(path string, keys []Entry) string {
	names := alternatives(keys)
	for _, name := range names {
		if _, picked := w.picks[path+"."+name]; picked {
			return name
		}
	}
	if names == nil {
		return ""
	}
	return names[0]
}

// named has a mapping for each name of a published file, each with another alternative.
func (w walk) named(at string, e Entry, indent string) string {
	all, either := "", alternatives(e.Inside)
	for i, name := range e.names[:map[bool]int{true: len(e.names), false: 1}[w.shown]] {
		keys := e.fresh()
		if w.shown && either != nil {
			w.terse, w.picks = true, map[string]string{}
			for _, k := range keys {
				if k.stated && (!k.either || k.Key == either[i%len(either)]) {
					w.picks[at+"."+name+"."+k.Key] = k.egs[min(i, len(k.egs)-1)]
				}
			}
		}
		all += indent + name + ":\n" + w.mapping(at+"."+name, keys, indent+"  ")
	}
	return all
}

// elements has an element, or one for each value of a first key that decides on others.
func (w walk) elements(at string, keys []Entry, indent string) string {
	first, path := keys[0], at+"."+keys[0].Key
	decides := slices.ContainsFunc(keys, func(e Entry) bool { return e.Only != nil && e.Only.keys[0] == first.Key })
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
	return c.keys[0] + ": " + Either(use)
}
