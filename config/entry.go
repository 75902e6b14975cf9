package config

import (
	"fmt"
	"slices"
	"strings"
)

// An entry is one key of a mapping. A mapping's table of entries is all that
// is known about it: the reader, the error texts and the test of the published
// schemas walk the same tables.
type entry struct {
	key      string
	required bool
	fallback string // the value of an absent key, as a user would write it; none if empty
	only     *condition
	value
}

// A value is how to read the node behind a key into a field.
type value struct {
	want   string // the accepted values, in words
	read   func(cursor)
	inside []entry // the keys of a mapping, or of each mapping of a list
}

// A condition on keys read before decides whether a key may appear at all.
type condition struct {
	spelling string // "dispatch: hunt"
	holds    func() bool
}

func need(key string, v value) entry { return entry{key: key, required: true, value: v} }

func optional(key, fallback string, v value) entry {
	return entry{key: key, fallback: fallback, value: v}
}

func (c *condition) need(key string, v value) entry {
	return entry{key: key, required: true, only: c, value: v}
}

func (c *condition) optional(key, fallback string, v value) entry {
	return entry{key: key, fallback: fallback, only: c, value: v}
}

// mapping reads the keys of a table and refuses all others.
func mapping(keys []entry) value {
	want := "a mapping with " + knownKeys(keys)
	read := func(c cursor) {
		if f := c.form(); f != object {
			c.fail("is %s; want %s", f, want)
			return
		}
		before, found := len(c.doc.mistakes), c.find(keys)
		for _, e := range keys {
			// After a mistake it is unknown whether a condition was meant to hold.
			if e.only == nil || len(c.doc.mistakes) == before {
				e.from(c, found)
			}
		}
	}
	return value{want, read, keys}
}

// from reads the entry's value out of a mapping.
func (e entry) from(c cursor, found map[string]cursor) {
	at, present := found[e.key]
	allowed := e.only == nil || e.only.holds()
	switch {
	case present && !allowed:
		at.fail("goes only with %s; remove it", e.only.spelling)
	case !allowed:
	case present:
		e.read(at)
	case e.required:
		c.doc.fail(c.at, c.key(e.key), fmt.Sprintf("is missing%s; want %s", e.because(), e.want))
	case e.fallback != "":
		e.read(c.absent(e.key, e.fallback))
	}
}

func (e entry) because() string {
	if e.only == nil {
		return ""
	}
	return ", but required with " + e.only.spelling
}

// find maps the keys of a table to their values in the file.
func (c cursor) find(keys []entry) map[string]cursor {
	found := map[string]cursor{}
	for _, pair := range c.pairs() {
		key, at := pair.Key.GetToken().Value, nodeStart(pair.Key)
		if now, was := renamed("", key); was && has(keys, now) {
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

func has(keys []entry, key string) bool {
	return slices.ContainsFunc(keys, func(e entry) bool { return e.key == key })
}

// shownKey is the path of a key that is not known, or of its mapping alone
// where the key may be a secret that lost its place.
func (c cursor) shownKey(key string) string {
	if c.hidden {
		return c.path
	}
	return c.key(printable(key))
}

func knownKeys(keys []entry) string {
	names := make([]string, len(keys))
	for i, e := range keys {
		names[i] = e.key
	}
	return strings.Join(names, ", ")
}

// sequence reads a list of mappings, fewest to most long.
func sequence[T any](dst *[]T, fewest, most int, keys func(*T) []entry) value {
	inside := keys(new(T))
	want := fmt.Sprintf("a list of %d to %d mappings with %s", fewest, most, knownKeys(inside))
	read := func(c cursor) {
		items, ok := c.items(fewest, most, want)
		if !ok {
			return
		}
		*dst = make([]T, len(items))
		for i, item := range items {
			mapping(keys(&(*dst)[i])).read(item)
		}
	}
	return value{want, read, inside}
}

// scalars reads a list of one to most values of a kind. An empty list would
// leave open whether it means the same as none.
func scalars[T any](dst *[]T, most int, k kind[T]) value {
	want := fmt.Sprintf("a list of 1 to %d, each %s", most, k.want)
	read := func(c cursor) {
		items, ok := c.items(1, most, want)
		if !ok {
			return
		}
		*dst = make([]T, len(items))
		for i, item := range items {
			scalar(&(*dst)[i], k).read(item)
		}
	}
	return value{want: want, read: read}
}
