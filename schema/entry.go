package schema

import (
	"fmt"
	"slices"
	"strings"
)

// An Entry is a row: all that is known about a key of a mapping. The reader, the writer, the error
// texts, the JSON Schemas, the examples and the documents' tables of keys walk the same rows.
type Entry struct {
	Key      string
	Meaning  string // sentences
	Required bool
	Fallback string     // the value of an absent key, as a user would write it; none if empty
	Only     *Condition // the key may appear only while it holds; nil: always
	Value
	stated bool // its examples are its own, not those of its kind
	either bool // one of the mapping's rows that are so is given
}

// A Value is how to read the node behind a key into a field, and how to write the field.
type Value struct {
	Want    string         // the accepted values, in words
	Inside  []Entry        // the keys of a mapping, or of each mapping of a list
	differs bool           // what is written has only what differs
	list    bool           // it is of a list
	many    bool           // one value, or a list
	names   []string       // it is of free names: those of examples
	fresh   func() []Entry // … and the keys of another mapping
	read    func(cursor)
	field   func() node   // the value of the field, as a file has it; nil: none that a file can have
	shape   func() shape  // of the JSON Schema
	tells   func() []Told // the meanings of the values; nil: none, or Entry.Meaning has them
	apart   []string      // values apart from the others
	why     string        // for what they are
	egs     []string      // examples, as a user would write them
}

// A Condition on another key of the same mapping decides whether a key may appear at all.
type Condition struct {
	keys     []string // any of them
	values   []string
	given    bool   // they are there, with any value
	spelling string // "dispatch: hunt"
}

// When is the condition that a key has any of the values; for errors it is spelt "dispatch: hunt".
func When(key string, values ...string) *Condition {
	return &Condition{keys: []string{key}, values: values, spelling: key + ": " + Either(values)}
}

// Spelt is the condition with another spelling in errors.
func (c Condition) Spelt(spelling string) *Condition {
	c.spelling = spelling
	return &c
}

// Having is the condition that any of some keys is given.
func Having(keys ...string) *Condition {
	return &Condition{keys: keys, given: true, spelling: Either(keys)}
}

// holds reads the key's field.
func (c *Condition) holds(keys []Entry) bool {
	if c == nil {
		return true
	}
	return slices.ContainsFunc(c.keys, func(key string) bool {
		field := of(keys, key).field()
		is, _ := field.(word)
		return c.given && field != nil || slices.Contains(c.values, is.text)
	})
}

// decides is the row of the key, or the first key.
func (c *Condition) decides(keys []Entry) Entry { return of(keys, c.keys[0]) }

// value is an example with which it holds.
func (c *Condition) value(keys []Entry) string {
	if c.given {
		return c.decides(keys).egs[0]
	}
	return c.values[0]
}

// unclear reports whether any of its keys has a mistake.
func (c *Condition) unclear(wrong map[string]bool) bool {
	return c != nil && slices.ContainsFunc(c.keys, func(key string) bool { return wrong[key] })
}

// of is the row of a key.
func of(keys []Entry, key string) Entry {
	return keys[slices.IndexFunc(keys, func(e Entry) bool { return e.Key == key })]
}

// Either joins alternatives: "a", "a or b", "a, b, or c".
func Either(names []string) string {
	if len(names) < 3 {
		return strings.Join(names, " or ")
	}
	last := len(names) - 1
	return strings.Join(names[:last], ", ") + ", or " + names[last]
}

// Need is a key that must be given.
func Need(key string, v Value, meaning string) Entry {
	return Entry{Key: key, Required: true, Value: v, Meaning: meaning}
}

// Optional is a key that may be absent. An empty fallback leaves its field as it is.
func Optional(key, fallback string, v Value, meaning string) Entry {
	return Entry{Key: key, Fallback: fallback, Value: v, Meaning: meaning}
}

// Need is a key that must be given while the condition holds, and must not be else.
func (c *Condition) Need(key string, v Value, meaning string) Entry {
	return Entry{Key: key, Required: true, Only: c, Value: v, Meaning: meaning}
}

// Optional is a key that may be given while the condition holds, and only then.
func (c *Condition) Optional(key, fallback string, v Value, meaning string) Entry {
	return Entry{Key: key, Fallback: fallback, Only: c, Value: v, Meaning: meaning}
}

// Eg gives a row examples of its own: the first is that of the published file.
func (e Entry) Eg(texts ...string) Entry {
	e.egs, e.stated = texts, true
	return e
}

// Alternative is a row of which the mapping has one: no key, or two, are a mistake.
func (e Entry) Alternative() Entry {
	e.either = true
	return e
}

// alternatives are the keys of such rows.
func alternatives(keys []Entry) (names []string) {
	for _, e := range keys {
		if e.either {
			names = append(names, e.Key)
		}
	}
	return names
}

// oneOf finds a mapping with none of its alternatives, or with several.
func (c cursor) oneOf(names []string, found map[string]cursor, meant map[string]bool) {
	first := ""
	for _, name := range names {
		at, given := found[name]
		switch {
		case !given && !meant[name]:
		case first == "":
			first = name
		case given:
			at.fail("does not go with %s; want one of %s", first, strings.Join(names, ", "))
		}
	}
	if first == "" && len(names) > 0 {
		c.fail("has none of the keys %s; want one", strings.Join(names, ", "))
	}
}

// Mapping reads the keys of a table and refuses all others.
func Mapping(keys []Entry) Value {
	want := "a mapping with " + knownKeys(keys)
	read := func(c cursor) {
		if f := c.form(); f != object {
			c.fail("is %s; want %s", f, want)
			return
		}
		found, meant := c.find(keys)
		c.oneOf(alternatives(keys), found, meant)
		wrong := map[string]bool{} // it is unknown whether a condition on them was meant to hold
		for _, e := range keys {
			before := len(c.doc.mistakes)
			if at, present := found[e.Key]; e.Only.unclear(wrong) {
				if present {
					e.read(at)
				}
			} else {
				e.from(c, found, e.Only.holds(keys))
			}
			wrong[e.Key] = meant[e.Key] || len(c.doc.mistakes) > before
		}
	}
	return Value{Want: want, Inside: keys, read: read, field: func() node { return whole(keys) }, shape: func() shape { return shapeOf(keys) }}
}

// from reads the entry's value out of a mapping.
func (e Entry) from(c cursor, found map[string]cursor, allowed bool) {
	at, present := found[e.Key]
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

// find maps the keys of a table to their values in the file; meant are those that a wrong key is like.
func (c cursor) find(keys []Entry) (found map[string]cursor, meant map[string]bool) {
	found, meant = map[string]cursor{}, map[string]bool{}
	for _, pair := range c.pairs() {
		key, at := pair.Key.GetToken().Value, nodeStart(pair.Key)
		if now, was := c.doc.renamed("", key); was && has(keys, now) {
			c.doc.fail(at, c.key(key), renamedTo(key, now))
			found[now] = c.child(c.key(now), pair.Value)
			continue
		}
		if !has(keys, key) {
			c.doc.fail(at, c.shownKey(key), "unknown key; "+suggest(key, keys))
			meant[similar(key, keys)] = true
			continue
		}
		if _, twice := found[key]; twice {
			c.doc.fail(at, c.key(key), fmt.Sprintf("is given twice; the first is at line %d", c.doc.where[c.key(key)].line))
			continue
		}
		found[key] = c.child(c.key(key), pair.Value)
	}
	for key := range found {
		delete(meant, key)
	}
	return found, meant
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
	same := func(v T) T { return v }
	return SequenceAs(dst, fewest, most, keys, same, same)
}

// SequenceAs is Sequence of mappings whose keys are the fields of another type.
func SequenceAs[T, F any](dst *[]T, fewest, most int, keys func(*F) []Entry, from func(F) T, to func(T) F) Value {
	inside := keys(new(F))
	want := fmt.Sprintf("a list of %d to %d mappings with %s", fewest, most, knownKeys(inside))
	read := func(c cursor) {
		items, ok := c.items(fewest, most, want)
		if !ok {
			return
		}
		*dst = make([]T, len(items))
		for i, item := range items {
			var f F
			Mapping(keys(&f)).read(item)
			(*dst)[i] = from(f)
		}
	}
	field := func() node {
		if len(*dst) == 0 && fewest > 0 {
			return nil
		}
		all := sequence{}
		for _, v := range *dst {
			f := to(v)
			all = append(all, fields(keys(&f)))
		}
		return all
	}
	return Value{Want: want, Inside: inside, read: read, field: field, shape: func() shape { return listShape(shapeOf(inside), fewest, most) }, list: true}
}
