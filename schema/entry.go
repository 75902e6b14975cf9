package schema

import (
	"fmt"
	"slices"
	"strings"
)

// An Entry is one key of a mapping. A mapping's table of entries is all that
// is known about it: the reader, the error texts and the test of the published
// schemas walk the same tables.
type Entry struct {
	Key      string
	Required bool
	Fallback string     // the value of an absent key, as a user would write it; none if empty
	Only     *Condition // the key may appear only while it holds; nil: always
	Value
}

// A Value is how to read the node behind a key into a field.
type Value struct {
	Want   string  // the accepted values, in words
	Inside []Entry // the keys of a mapping, or of each mapping of a list
	read   func(cursor)
}

// A Condition on keys read before decides whether a key may appear at all.
type Condition struct {
	spelling string // "dispatch: hunt"
	holds    func() bool
}

// When is a condition, and its spelling in errors: "dispatch: hunt".
func When(spelling string, holds func() bool) *Condition { return &Condition{spelling, holds} }

// Need is a key that must be given.
func Need(key string, v Value) Entry { return Entry{Key: key, Required: true, Value: v} }

// Optional is a key that may be absent. An empty fallback leaves its field as it is.
func Optional(key, fallback string, v Value) Entry {
	return Entry{Key: key, Fallback: fallback, Value: v}
}

// Need is a key that must be given while the condition holds, and must not be else.
func (c *Condition) Need(key string, v Value) Entry {
	return Entry{Key: key, Required: true, Only: c, Value: v}
}

// Optional is a key that may be given while the condition holds, and only then.
func (c *Condition) Optional(key, fallback string, v Value) Entry {
	return Entry{Key: key, Fallback: fallback, Only: c, Value: v}
}

// Mapping reads the keys of a table and refuses all others.
func Mapping(keys []Entry) Value {
	want := "a mapping with " + knownKeys(keys)
	read := func(c cursor) {
		if f := c.form(); f != object {
			c.fail("is %s; want %s", f, want)
			return
		}
		before, found := len(c.doc.mistakes), c.find(keys)
		for _, e := range keys {
			// After a mistake it is unknown whether a condition was meant to hold.
			if e.Only == nil || len(c.doc.mistakes) == before {
				e.from(c, found)
			}
		}
	}
	return Value{want, keys, read}
}

// from reads the entry's value out of a mapping.
func (e Entry) from(c cursor, found map[string]cursor) {
	at, present := found[e.Key]
	allowed := e.Only == nil || e.Only.holds()
	switch {
	case present && !allowed:
		at.fail("goes only with %s; remove it", e.Only.spelling)
	case !allowed:
	case present:
		e.read(at)
	case e.Required:
		c.doc.fail(c.at, c.key(e.Key), fmt.Sprintf("is missing%s; want %s", e.because(), e.Want))
	case e.Fallback != "":
		e.read(c.absent(e.Key, e.Fallback))
	}
}

func (e Entry) because() string {
	if e.Only == nil {
		return ""
	}
	return ", but required with " + e.Only.spelling
}

// find maps the keys of a table to their values in the file.
func (c cursor) find(keys []Entry) map[string]cursor {
	found := map[string]cursor{}
	for _, pair := range c.pairs() {
		key, at := pair.Key.GetToken().Value, nodeStart(pair.Key)
		if now, was := c.doc.renamed("", key); was && has(keys, now) {
			c.doc.fail(at, c.key(key), renamedTo(key, now))
			found[now] = c.child(c.key(now), pair.Value)
			continue
		}
		if !has(keys, key) {
			c.doc.fail(at, c.shownKey(key), "unknown key; "+suggest(key, keys))
			continue
		}
		if _, twice := found[key]; twice {
			c.doc.fail(at, c.key(key), fmt.Sprintf("is given twice; the first is at line %d", c.doc.where[c.key(key)].line))
			continue
		}
		found[key] = c.child(c.key(key), pair.Value)
	}
	return found
}

func has(keys []Entry, key string) bool {
	return slices.ContainsFunc(keys, func(e Entry) bool { return e.Key == key })
}

// shownKey is the path of a key that is not known, or of its mapping alone
// where the key may be a secret that lost its place.
func (c cursor) shownKey(key string) string {
	if c.hidden {
		return c.path
	}
	return c.key(printable(key))
}

func knownKeys(keys []Entry) string {
	names := make([]string, len(keys))
	for i, e := range keys {
		names[i] = e.Key
	}
	return strings.Join(names, ", ")
}

// Sequence reads a list of mappings, fewest to most long.
func Sequence[T any](dst *[]T, fewest, most int, keys func(*T) []Entry) Value {
	inside := keys(new(T))
	want := fmt.Sprintf("a list of %d to %d mappings with %s", fewest, most, knownKeys(inside))
	read := func(c cursor) {
		items, ok := c.items(fewest, most, want)
		if !ok {
			return
		}
		*dst = make([]T, len(items))
		for i, item := range items {
			Mapping(keys(&(*dst)[i])).read(item)
		}
	}
	return Value{want, inside, read}
}
