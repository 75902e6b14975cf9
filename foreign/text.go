package foreign

import (
	"fmt"
	"reflect"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Printable is a text as a terminal may show it: each character that does not print, be it part of an
// escape sequence, a change of direction or no UTF-8, is written as in Go's source.
func Printable(s string) string { return escaped(s, unicode.IsPrint) }

// Lines is Printable, but a text may have several lines.
func Lines(s string) string {
	return escaped(s, func(r rune) bool { return unicode.IsPrint(r) || r == '\n' || r == '\t' })
}

func escaped(s string, prints func(rune) bool) string {
	good := func(r rune, size int) bool { return prints(r) && (r != utf8.RuneError || size > 1) }
	var b strings.Builder
	last := 0 // everything before is in b
	for at := 0; at < len(s); {
		r, size := utf8.DecodeRuneInString(s[at:])
		if !good(r, size) {
			b.WriteString(s[last:at])
			b.WriteString(escape(s[at:at+size], r, size))
			last = at + size
		}
		at += size
	}
	if last == 0 {
		return s
	}
	b.WriteString(s[last:])
	return b.String()
}

func escape(text string, r rune, size int) string {
	switch {
	case r == '\n':
		return `\n`
	case r == '\t':
		return `\t`
	case size == 1:
		return fmt.Sprintf(`\x%02x`, text[0])
	case r > 0xffff:
		return fmt.Sprintf(`\U%08x`, r)
	default:
		return fmt.Sprintf(`\u%04x`, r)
	}
}

// Cut is a printable text of at most so many characters, and a mark if there was more.
func Cut(s string, most int) string {
	n := 0
	for at := range s {
		if n++; n > most {
			return Printable(s[:at]) + "…"
		}
	}
	return Printable(s)
}

// Clean is a copy of a value with every text in it printable: in structs, slices and maps, and behind
// pointers.
func Clean[T any](v T) T { return clean(reflect.ValueOf(&v).Elem()).Interface().(T) }

func clean(v reflect.Value) reflect.Value {
	c := reflect.New(v.Type()).Elem()
	c.Set(v)
	switch v.Kind() {
	case reflect.String:
		c.SetString(Printable(v.String()))
	case reflect.Pointer:
		if !v.IsNil() {
			c.Set(reflect.New(v.Type().Elem()))
			c.Elem().Set(clean(v.Elem()))
		}
	case reflect.Struct:
		for i := range v.NumField() {
			c.Field(i).Set(clean(v.Field(i)))
		}
	case reflect.Slice:
		if !v.IsNil() {
			c.Set(reflect.MakeSlice(v.Type(), v.Len(), v.Len()))
		}
		for i := range v.Len() {
			c.Index(i).Set(clean(v.Index(i)))
		}
	case reflect.Map:
		if !v.IsNil() {
			c.Set(reflect.MakeMap(v.Type()))
		}
		for _, key := range v.MapKeys() {
			c.SetMapIndex(clean(key), clean(v.MapIndex(key)))
		}
	}
	return c
}
