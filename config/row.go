package config

import (
	"fmt"

	"proffer/schema"
)

// with joins the names of the values that have a property: "hunt", "busy or page".
func with[T fmt.Stringer](all []T, has func(T) bool) string { return schema.Either(having(all, has)) }

// without is with, of the others.
func without[T fmt.Stringer](all []T, has func(T) bool) string {
	return with(all, func(v T) bool { return !has(v) })
}

// having is the names of the values that have a property.
func having[T fmt.Stringer](all []T, has func(T) bool) (names []string) {
	for _, v := range all {
		if has(v) {
			names = append(names, v.String())
		}
	}
	return names
}

// told has the meaning of each value.
func told[T any](all []T, name, meaning func(T) string) func() []schema.Told {
	return func() (values []schema.Told) {
		for _, v := range all {
			values = append(values, schema.Told{Value: name(v), Meaning: meaning(v)})
		}
		return values
	}
}

// spelt is the names of all values, the first of them first.
func spelt[T fmt.Stringer](first T, all []T) []string {
	names := having(all, func(v T) bool { return v.String() != first.String() })
	return append([]string{first.String()}, names...)
}
