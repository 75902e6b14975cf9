package schema

import (
	"fmt"
	"slices"
)

// Named reads a mapping from free names to mappings of a table, fewest to most long. egs are the names in
// examples: the published file has a mapping for each.
func Named[T any](dst *[]T, fewest, most int, name Kind[string], nameOf func(*T) *string, keys func(*T) []Entry, egs ...string) Value {
	inside := keys(new(T))
	want := fmt.Sprintf("a mapping of %d to %d names, each to a mapping with %s", fewest, most, knownKeys(inside))
	read := func(c cursor) {
		if f := c.form(); f != object {
			c.fail("is %s; want %s", f, want)
			return
		}
		pairs := c.pairs()
		if n := len(pairs); n < fewest || n > most {
			c.fail("has %d names; want %s", n, want)
			return
		}
		at := map[string]int{}
		for _, pair := range pairs {
			key, start := pair.Key.GetToken().Value, nodeStart(pair.Key)
			if _, err := name.Read(key); err != nil {
				c.doc.fail(start, c.key(printable(key)), name.refusal(key, err))
				continue
			}
			if line, twice := at[key]; twice {
				c.doc.fail(start, c.key(key), fmt.Sprintf("is given twice; the first is at line %d", line))
				continue
			}
			at[key] = start.line
			inner := c.child(c.key(key), pair.Value)
			var v T
			*nameOf(&v) = key
			Mapping(keys(&v)).read(inner)
			*dst = append(*dst, v)
		}
	}
	field := func() node {
		if len(*dst) == 0 && fewest > 0 {
			return nil
		}
		all := table{}
		for _, v := range *dst {
			all = append(all, pair{key: *nameOf(&v), value: fields(keys(&v)), brief: true})
		}
		return all
	}
	shaped := func() shape {
		s := shape{"type": "object", "minProperties": fewest, "maxProperties": most, "additionalProperties": shapeOf(inside)}
		if p, ok := name.shape["pattern"]; ok {
			s["propertyNames"] = shape{"pattern": p}
		}
		return s
	}
	return Value{Want: want, Inside: inside, read: read, field: field, shape: shaped, names: egs, fresh: func() []Entry { return keys(new(T)) }}
}

// Named reports whether a mapping has free names.
func (e Entry) Named() bool { return e.names != nil }

// OneOrList reads one value of the kind, or a list of one to most.
func (k Kind[T]) OneOrList(dst *[]T, most int) Value {
	v := k.List(dst, most)
	v.Want = k.Want + ", or " + v.Want
	v.read = func(c cursor) {
		if c.form() == list {
			k.list(c, dst, most, v.Want)
			return
		}
		var one T
		ok := true
		before := len(c.doc.mistakes)
		k.Into(&one).read(c)
		if ok = len(c.doc.mistakes) == before; ok {
			*dst = []T{one}
		}
	}
	v.field = func() node {
		if len(*dst) == 1 {
			return word{k.Write((*dst)[0]), k.plain}
		}
		return k.words(*dst)
	}
	v.shape = func() shape { return shape{"anyOf": []any{k.shape, listShape(k.shape, 1, most)}} }
	v.egs, v.many = append(slices.Clone(k.egs), v.egs...), true
	return v
}

// ListedByName reads a list of names, each alone or in a mapping as its first key. A mapping's other keys change
// what from has; an element that is written has those that differ from it.
func ListedByName[T any](dst *[]T, most int, from func() T, keys func(*T) []Entry) Value {
	proto := from()
	inside := keys(&proto)
	want := fmt.Sprintf("a list of 0 to %d names, or mappings with %s", most, knownKeys(inside))
	read := func(c cursor) {
		items, ok := c.items(0, most, want)
		if !ok {
			return
		}
		*dst = nil
		for _, item := range items {
			v := from()
			switch rows, before := keys(&v), len(c.doc.mistakes); item.form() {
			case text, quoted:
				named := item
				named.path = item.key(rows[0].Key)
				if rows[0].read(item); len(c.doc.mistakes) == before {
					item.doc.where[named.path] = item.at
				}
			case object:
				Mapping(rows).read(item)
			default:
				item.fail("is %s; want a name, or a mapping with %s", item.form(), knownKeys(rows))
			}
			*dst = append(*dst, v)
		}
	}
	field := func() node {
		all := sequence{}
		for _, v := range *dst {
			all = append(all, differing(keys, v, from()))
		}
		return all
	}
	shaped := func() shape {
		return listShape(shape{"anyOf": []any{inside[0].shape(), shapeOf(inside)}}, 0, most)
	}
	return Value{Want: want, Inside: inside, read: read, field: field, shape: shaped, list: true, differs: true}
}

// differing is the name of v alone, or with the fields that from has otherwise.
func differing[T any](keys func(*T) []Entry, v, from T) node {
	all, usual := fields(keys(&v)), fields(keys(&from))
	out := table{all[0]}
	for _, p := range all[1:] {
		same := slices.ContainsFunc(usual, func(u pair) bool { return u.key == p.key && u.value.flow() == p.value.flow() })
		if !same {
			out = append(out, p)
		}
	}
	if len(out) == 1 {
		return out[0].value
	}
	return out
}
