package config

import (
	"fmt"
	"strings"

	"proffer/schema"
)

// with joins the names of the values that have a property: "hunt", "busy or page".
func with[T fmt.Stringer](all []T, has func(T) bool) string {
	var names []string
	for _, v := range all {
		if has(v) {
			names = append(names, v.String())
		}
	}
	return either(names)
}

// without is with, of the others.
func without[T fmt.Stringer](all []T, has func(T) bool) string {
	return with(all, func(v T) bool { return !has(v) })
}

func either(names []string) string {
	if len(names) < 3 {
		return strings.Join(names, " or ")
	}
	last := len(names) - 1
	return strings.Join(names[:last], ", ") + ", or " + names[last]
}

// onlyWith holds while the value of a key has a property.
func onlyWith[T fmt.Stringer](key string, all []T, has func(T) bool, value *T) *schema.Condition {
	return schema.When(key+": "+with(all, has), func() bool { return has(*value) })
}
