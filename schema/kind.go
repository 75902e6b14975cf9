package schema

import (
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// A Kind is a sort of scalar: the accepted values in words, the forms it may be
// written in, its meaning, and how it is spelt. ErrNot of Read adds nothing to Want; any
// other error is a further hint.
type Kind[T any] struct {
	Want  string
	forms []form
	Read  func(string) (T, error)
	Write func(T) string
	plain bool          // written without quotes
	shape shape         // of the JSON Schema
	egs   []string      // values, as a user would write them
	tells func() []Told // the meanings of its values
	apart []string      // values that are apart from the others
	why   string        // for what they are
	known []string      // all values, where they are few
}

// ErrNot refuses a text that is not of the kind.
var ErrNot = errors.New("is not an accepted value")

// Forms of a scalar. Exponents (1e-3) are text to the YAML parser.
var (
	asText   = []form{text, quoted}
	asNumber = []form{number, text}
	asEither = []form{text, quoted, number}
)

// Text is a kind written as text, quoted or not. Its example is the first that want has.
func Text[T any](want string, read func(string) (T, error)) Kind[T] {
	k := Kind[T]{Want: want, forms: asText, Read: read, Write: func(v T) string { return fmt.Sprint(v) }, shape: shape{"type": "string"}}
	if _, eg, ok := strings.Cut(want, "such as "); ok {
		eg, _, _ = strings.Cut(eg, " ")
		k.egs = []string{quotedText(strings.TrimSuffix(eg, ","))}
	}
	return k
}

// plainText is surely text to YAML.
var plainText = regexp.MustCompile(`^[A-Za-z/][A-Za-z0-9/._-]*$`)

func quotedText(s string) string {
	if plainText.MatchString(s) {
		return s
	}
	return strconv.Quote(s)
}

// TextOrNumber is a kind of values that may look like numbers to YAML, as 30 digits do.
func TextOrNumber[T any](want string, read func(string) (T, error)) Kind[T] {
	k := Text(want, read)
	k.forms, k.shape = asEither, shape{"type": []string{"string", "number"}}
	return k
}

// Spelt is the kind with a spelling of its own.
func (k Kind[T]) Spelt(write func(T) string) Kind[T] {
	k.Write = write
	return k
}

// Like is the kind with a pattern for the JSON Schema, which accepts all of its values and few others.
func (k Kind[T]) Like(pattern string) Kind[T] {
	k.shape = maps.Clone(k.shape)
	k.shape["pattern"] = pattern
	return k
}

// Eg is the kind with examples.
func (k Kind[T]) Eg(texts ...string) Kind[T] {
	k.egs = texts
	return k
}

// Told is a value and its meaning.
type Told struct{ Value, Meaning string }

// Telling is the kind with the meanings of its values.
func (k Kind[T]) Telling(meanings func() []Told) Kind[T] {
	k.tells = meanings
	return k
}

// Parse reads a value that stands in no file.
func (k Kind[T]) Parse(s string) (T, error) {
	v, err := k.Read(s)
	if err != nil {
		return v, errors.New(k.refusal(s, err))
	}
	return v, nil
}

// Into reads a value of the kind into dst.
func (k Kind[T]) Into(dst *T) Value {
	return k.Set(func(v T) { *dst = v }, func() T { return *dst })
}

// Set reads a value of the kind into set, and writes that of get.
func (k Kind[T]) Set(set func(T), get func() T) Value {
	read := func(c cursor) {
		if f := c.form(); !slices.Contains(k.forms, f) {
			c.fail("is %s; want %s", f, k.Want)
			return
		}
		v, err := k.Read(c.literal())
		now, was := c.doc.renamed(c.last(), c.literal())
		switch {
		case err != nil && was:
			c.fail("%s", renamedTo(c.literal(), now))
		case err != nil && c.hidden:
			c.fail("is not %s", k.Want)
		case err != nil:
			c.fail("%s", k.refusal(c.literal(), err))
		default:
			set(v)
		}
	}
	return Value{Want: k.Want, tells: k.tells, apart: k.apart, why: k.why, read: read, field: func() node { return k.word(get()) }, shape: func() shape { return k.shape }, egs: k.egs}
}

// word spells a value, if a file can have it.
func (k Kind[T]) word(v T) node {
	text := k.Write(v)
	if _, err := k.Read(text); err != nil {
		return nil
	}
	return word{text, k.plain}
}

// words spells a list.
func (k Kind[T]) words(list []T) node {
	if len(list) == 0 {
		return nil
	}
	all := sequence{}
	for _, v := range list {
		all = append(all, word{k.Write(v), k.plain})
	}
	return all
}

// refusal is the error text for a value that Read refused with err.
func (k Kind[T]) refusal(written string, err error) string {
	if meant := Nearest(written, k.known); errors.Is(err, ErrNot) && meant != "" {
		return fmt.Sprintf("%s is not %s; did you mean %s?", shown(written), k.Want, meant)
	}
	if errors.Is(err, ErrNot) {
		return fmt.Sprintf("%s is not %s", shown(written), k.Want)
	}
	return fmt.Sprintf("%s %v; want %s", shown(written), err, k.Want)
}

// List reads a list of one to most values of the kind. An empty list would
// leave open whether it means the same as none.
func (k Kind[T]) List(dst *[]T, most int) Value {
	want := k.listed(most)
	read := func(c cursor) { k.list(c, dst, most, want) }
	return Value{Want: want, read: read, field: func() node { return k.words(*dst) }, shape: func() shape { return listShape(k.shape, 1, most) }, egs: listed(k.egs)}
}

// listed is a list of each example.
func listed(egs []string) (lists []string) {
	for _, eg := range egs {
		lists = append(lists, "["+eg+"]")
	}
	return lists
}

// ListOr is List, and a word in its place that leaves dst as it is.
func (k Kind[T]) ListOr(instead string, dst *[]T, most int) Value {
	v := k.List(dst, most)
	v.Want += ", or the word " + instead
	v.read = func(c cursor) {
		if !slices.Contains(asText, c.form()) || c.literal() != instead {
			k.list(c, dst, most, v.Want)
		}
	}
	some := v.field
	v.field = func() node {
		if len(*dst) == 0 {
			return word{instead, true}
		}
		return some()
	}
	v.shape = func() shape {
		s := listShape(k.shape, 1, most)
		s["type"], s["pattern"] = []string{"array", "string"}, "^"+instead+"$"
		return s
	}
	v.egs = append(v.egs, instead)
	return v
}

// Marked is a ListOr that notes whether the word was given; without it and without a list there is no value.
func (v Value) Marked(given *bool) Value {
	read, field := v.read, v.field
	v.read = func(c cursor) {
		read(c)
		*given = c.form() != list
	}
	v.field = func() node {
		if n := field(); !isWord(n) || *given {
			return n
		}
		return nil
	}
	return v
}

func (k Kind[T]) listed(most int) string {
	return fmt.Sprintf("a list of 1 to %d, each %s", most, k.Want)
}

func (k Kind[T]) list(c cursor, dst *[]T, most int, want string) {
	items, ok := c.items(1, most, want)
	if !ok {
		return
	}
	*dst = make([]T, len(items))
	for i, item := range items {
		k.Into(&(*dst)[i]).read(item)
	}
}

// Secret reads a value that no error may repeat.
func (k Kind[T]) Secret(dst *T) Value {
	v := k.Into(dst)
	read := v.read
	v.read = func(c cursor) {
		c.hidden = true
		read(c)
	}
	return v
}

func shown(written string) string {
	if short := []rune(written); len(short) > 60 {
		written = string(short[:60]) + "…"
	}
	return strconv.Quote(written)
}
