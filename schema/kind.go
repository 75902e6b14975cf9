package schema

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// A Kind is a sort of scalar: the accepted values in words, the forms it may be
// written in, and its meaning. ErrNot of Read adds nothing to Want; any other error
// is a further hint.
type Kind[T any] struct {
	Want  string
	forms []form
	Read  func(string) (T, error)
}

// ErrNot refuses a text that is not of the kind.
var ErrNot = errors.New("is not an accepted value")

// Forms of a scalar. Exponents (1e-3) are text to the YAML parser.
var (
	asText   = []form{text, quoted}
	asNumber = []form{number, text}
	asEither = []form{text, quoted, number}
)

// Text is a kind written as text, quoted or not.
func Text[T any](want string, read func(string) (T, error)) Kind[T] {
	return Kind[T]{want, asText, read}
}

// TextOrNumber is a kind of values that may look like numbers to YAML, as 30 digits do.
func TextOrNumber[T any](want string, read func(string) (T, error)) Kind[T] {
	return Kind[T]{want, asEither, read}
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
	return k.Set(func(v T) { *dst = v })
}

// Set reads a value of the kind and calls set with it.
func (k Kind[T]) Set(set func(T)) Value {
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
	return Value{Want: k.Want, read: read}
}

// refusal is the error text for a value that Read refused with err.
func (k Kind[T]) refusal(written string, err error) string {
	if errors.Is(err, ErrNot) {
		return fmt.Sprintf("%s is not %s", shown(written), k.Want)
	}
	return fmt.Sprintf("%s %v; want %s", shown(written), err, k.Want)
}

// List reads a list of one to most values of the kind. An empty list would
// leave open whether it means the same as none.
func (k Kind[T]) List(dst *[]T, most int) Value {
	want := k.listed(most)
	return Value{Want: want, read: func(c cursor) { k.list(c, dst, most, want) }}
}

// ListOr is List, and a word in its place that leaves dst as it is.
func (k Kind[T]) ListOr(word string, dst *[]T, most int) Value {
	want := k.listed(most) + ", or the word " + word
	return Value{Want: want, read: func(c cursor) {
		if !slices.Contains(asText, c.form()) || c.literal() != word {
			k.list(c, dst, most, want)
		}
	}}
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
	return Value{Want: v.Want, read: func(c cursor) {
		c.hidden = true
		v.read(c)
	}}
}

func shown(written string) string {
	if short := []rune(written); len(short) > 60 {
		written = string(short[:60]) + "…"
	}
	return strconv.Quote(written)
}

// OneOf accepts the spellings of some constants.
func OneOf[T fmt.Stringer](choices ...T) Kind[T] {
	words := make([]string, len(choices))
	for i, c := range choices {
		words[i] = c.String()
	}
	return Kind[T]{"one of " + strings.Join(words, ", "), asText, func(s string) (T, error) {
		if i := slices.Index(words, s); i >= 0 {
			return choices[i], nil
		}
		var none T
		return none, ErrNot
	}}
}

// Whole accepts a whole number in plain decimal digits: 010 is 8 to one reader
// of YAML and 10 to the next.
func Whole(least, most int) Kind[int] {
	want := fmt.Sprintf("a whole number from %d to %d", least, most)
	return Kind[int]{want, asNumber, func(s string) (int, error) {
		n, err := strconv.Atoi(s)
		if err != nil || strconv.Itoa(n) != s || n < least || n > most {
			return 0, ErrNot
		}
		return n, nil
	}}
}

// Fraction accepts a number between two bounds.
func Fraction(least, most float64) Kind[float64] {
	want := fmt.Sprintf("a number from %v to %v", least, most)
	return Kind[float64]{want, asNumber, func(s string) (float64, error) {
		v, err := strconv.ParseFloat(s, 64)
		if err != nil || !(v >= least && v <= most) || strings.ContainsAny(s, "xX_") {
			return 0, ErrNot
		}
		return v + 0, nil // -0 becomes 0
	}}
}

// Duration accepts a duration above 0.
func Duration() Kind[time.Duration] {
	return Kind[time.Duration]{"a duration above 0 such as 10s, 5m or 1h30m", asEither, func(s string) (time.Duration, error) {
		d, err := time.ParseDuration(s)
		if err != nil || d <= 0 {
			return 0, ErrNot
		}
		return d, nil
	}}
}

// Within accepts durations between two bounds.
func Within(least, most time.Duration) Kind[time.Duration] {
	want := fmt.Sprintf("a duration from %s to %s", Short(least), Short(most))
	return Kind[time.Duration]{want, asEither, func(s string) (time.Duration, error) {
		d, err := time.ParseDuration(s)
		if err != nil || d < least || d > most {
			return 0, ErrNot
		}
		return d, nil
	}}
}

// Short writes a duration as a file would: it drops the zeros of 1h0m0s.
func Short(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

// Word accepts 1 to longest bytes that are all in an alphabet.
func Word(want string, longest int, in func(rune) bool) Kind[string] {
	return Kind[string]{want, asText, func(s string) (string, error) {
		if s == "" || len(s) > longest || strings.ContainsFunc(s, func(r rune) bool { return !in(r) }) {
			return "", ErrNot
		}
		return s, nil
	}}
}

// Name labels metrics and fills columns, so it has no spaces.
func Name() Kind[string] {
	return Word("a name of 1 to 63 letters, digits and . _ : [ ] -", 63, func(r rune) bool {
		return 'A' <= r && r <= 'Z' || 'a' <= r && r <= 'z' || '0' <= r && r <= '9' || strings.ContainsRune("._:[]-", r)
	})
}
