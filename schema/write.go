package schema

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Write is a file with the fields of a table: Parse with the same table reads them back. It leaves out a
// field with a value that its key cannot have, as its zero; an absent key has its default.
func Write(keys []Entry) []byte { return WriteAt("", keys) }

// WriteAt is Write of a part of a file, with an indent.
func WriteAt(indent string, keys []Entry) []byte { return []byte(fields(keys).block(indent)) }

// WriteShort is Write without the values that absent keys have.
func WriteShort(keys []Entry) []byte { return []byte(short(fields(keys), keys).block("")) }

// short leaves out the pairs of a table that have the fallbacks of its rows.
func short(t table, keys []Entry) (out table) {
	for _, p := range t {
		e := of(keys, p.key)
		switch v := p.value.(type) {
		case table:
			p.value = shortOf(v, e)
		case sequence:
			if e.Inside != nil && !e.differs {
				inner := sequence{}
				for _, element := range v {
					inner = append(inner, short(element.(table), e.Inside))
				}
				p.value = inner
			}
		}
		if w, is := p.value.(word); e.Required || e.Fallback == "" || p.value.flow() != e.Fallback && (!is || w.text != e.Fallback) {
			out = append(out, p)
		}
	}
	return out
}

// shortOf is a mapping of a table, or of names.
func shortOf(v table, e Entry) table {
	if e.names == nil {
		return short(v, e.Inside)
	}
	named := table{}
	for _, p := range v {
		named = append(named, pair{p.key, short(p.value.(table), e.Inside), true})
	}
	return named
}

// node is a value as a file has it: a word, a list or a mapping.
type node interface {
	flow() string // on one line
	flat() bool   // it is better to read on one line
}

type (
	word struct {
		text  string
		plain bool // without quotes
	}
	sequence []node
	table    []pair
	pair     struct {
		key   string
		value node
		brief bool // a mapping is on one line, if it is short
	}
)

// fields are those of a table that a file has.
func fields(keys []Entry) table {
	var t table
	for _, e := range keys {
		if !e.Only.holds(keys) {
			continue
		}
		if v := e.field(); v != nil {
			t = append(t, pair{key: e.Key, value: v})
		}
	}
	return t
}

// whole is fields, nil where a key that must be there has none.
func whole(keys []Entry) node {
	t := fields(keys)
	for _, e := range keys {
		if e.Required && e.Only.holds(keys) && !slices.ContainsFunc(t, func(p pair) bool { return p.key == e.Key }) {
			return nil
		}
	}
	return t
}

// YAML's double quotes know every escape that Go writes.
func (w word) flow() string {
	if w.plain {
		return w.text
	}
	return strconv.Quote(w.text)
}

func (s sequence) flow() string {
	texts := make([]string, len(s))
	for i, v := range s {
		texts[i] = v.flow()
	}
	return "[" + strings.Join(texts, ", ") + "]"
}

func (t table) flow() string {
	texts := make([]string, len(t))
	for i, p := range t {
		texts[i] = keyText(p.key) + ": " + p.value.flow()
	}
	return "{" + strings.Join(texts, ", ") + "}"
}

// longestLine bounds a mapping on one line.
const longestLine = 80

func (w word) flat() bool { return true }
func (s sequence) flat() bool {
	return !slices.ContainsFunc(s, func(v node) bool { return !isWord(v) })
}
func (t table) flat() bool {
	return len(t.flow()) <= longestLine && !slices.ContainsFunc(t, func(p pair) bool { return !isWord(p.value) })
}

func isWord(v node) bool {
	_, ok := v.(word)
	return ok
}

// block has a line a key, and one an element of a list.
func (t table) block(indent string) string {
	var b strings.Builder
	for _, p := range t {
		p.key = keyText(p.key)
		elements, isList := p.value.(sequence)
		inner, isMapping := p.value.(table)
		switch {
		case isMapping && len(inner) > 0 && !(p.brief && inner.flat()):
			fmt.Fprintf(&b, "%s%s:\n%s", indent, p.key, inner.block(indent+"  "))
		case isList && !elements.flat():
			fmt.Fprintf(&b, "%s%s:\n", indent, p.key)
			for _, v := range elements {
				b.WriteString(element(v, indent+"  "))
			}
		default:
			fmt.Fprintf(&b, "%s%s: %s\n", indent, p.key, p.value.flow())
		}
	}
	return b.String()
}

// plainKey is a key that needs no quotes.
var plainKey = regexp.MustCompile(`^[A-Za-z0-9_]([A-Za-z0-9._-]*[A-Za-z0-9_])?$`)

func keyText(key string) string {
	if plainKey.MatchString(key) {
		return key
	}
	return strconv.Quote(key)
}

// element is a mapping in a list.
func element(v node, indent string) string {
	if t, ok := v.(table); ok && !t.flat() {
		return indent + "- " + strings.TrimPrefix(t.block(indent+"  "), indent+"  ")
	}
	return indent + "- " + v.flow() + "\n"
}
