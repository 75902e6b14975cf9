package schema

import (
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// OneOf accepts the spellings of some constants.
func OneOf[T fmt.Stringer](choices ...T) Kind[T] {
	words := make([]string, len(choices))
	for i, c := range choices {
		words[i] = c.String()
	}
	return choice(words, func(i int) T { return choices[i] }).Spelt(T.String)
}

// OneOfApart is OneOf, with some constants apart from those that are for use.
func OneOfApart[T fmt.Stringer](why string, apart func(T) bool, choices ...T) Kind[T] {
	k := OneOf(choices...)
	var use []string
	for i, c := range choices {
		if apart(c) {
			k.apart = append(k.apart, k.egs[i])
		} else {
			use = append(use, k.egs[i])
		}
	}
	k.Want, k.why = "one of "+strings.Join(use, ", ")+", or "+why+" one of "+strings.Join(k.apart, ", "), why
	return k
}

// Words accepts some words.
func Words(words ...string) Kind[string] {
	return choice(words, func(i int) string { return words[i] })
}

// YesNo accepts two words, the second for true.
func YesNo(no, yes string) Kind[bool] {
	words := []string{no, yes}
	return choice(words, func(i int) bool { return i == 1 }).Spelt(func(is bool) string {
		if is {
			return yes
		}
		return no
	})
}

func choice[T any](words []string, value func(int) T) Kind[T] {
	k := Text("one of "+strings.Join(words, ", "), func(s string) (v T, err error) {
		if i := slices.Index(words, s); i >= 0 {
			return value(i), nil
		}
		return v, ErrNot
	})
	k.plain, k.shape, k.egs, k.known = true, shape{"enum": words}, words, words
	return k
}

// Whole accepts a whole number in plain decimal digits: 010 is 8 to some readers
// of YAML and 10 to the next.
func Whole(least, most int) Kind[int] { return WholeOf[int](least, most) }

// WholeOf is Whole, in a type that has room for it.
func WholeOf[T ~int | ~uint8 | ~uint16](least, most int) Kind[T] {
	k := Text(fmt.Sprintf("a whole number from %d to %d", least, most), func(s string) (T, error) {
		n, err := strconv.Atoi(s)
		if err != nil || strconv.Itoa(n) != s || n < least || n > most {
			return 0, ErrNot
		}
		return T(n), nil
	})
	k.plain, k.forms, k.shape = true, asNumber, shape{"type": "integer", "minimum": least, "maximum": most}
	return k.Eg(strconv.Itoa(max(least, min(most, 1))))
}

// Fraction accepts a number between two bounds.
func Fraction(least, most float64) Kind[float64] {
	k := Text(fmt.Sprintf("a number from %v to %v", least, most), func(s string) (float64, error) {
		v, err := strconv.ParseFloat(s, 64)
		if err != nil || !(v >= least && v <= most) || strings.ContainsAny(s, "xX_") {
			return 0, ErrNot
		}
		return v + 0, nil // -0 becomes 0
	}).Spelt(func(v float64) string { return strconv.FormatFloat(v, 'f', -1, 64) })
	k.plain, k.forms, k.shape = true, asNumber, shape{"type": "number", "minimum": least, "maximum": most}
	return k.Eg(k.Write(most))
}

// Duration accepts a duration above 0.
func Duration() Kind[time.Duration] {
	return duration("a duration above 0 such as 10s, 5m or 1h30m", 1, math.MaxInt64)
}

// Within accepts durations between two bounds.
func Within(least, most time.Duration) Kind[time.Duration] {
	return duration(fmt.Sprintf("a duration from %s to %s", Short(least), Short(most)), least, most).Eg(Short(min(max(least, time.Second), most)))
}

func duration(want string, least, most time.Duration) Kind[time.Duration] {
	k := TextOrNumber(want, func(s string) (time.Duration, error) {
		d, err := time.ParseDuration(s)
		if err != nil || d < least || d > most {
			return 0, ErrNot
		}
		return d, nil
	}).Spelt(Short).Like(`^\+?(0|([0-9]+(\.[0-9]*)?(ns|us|µs|μs|ms|s|m|h))+)$`)
	k.plain = true
	return k
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

// Word accepts 1 to longest bytes that are all in an alphabet, a class of a regular expression.
func Word(want string, longest int, alphabet string) Kind[string] {
	pattern := fmt.Sprintf("^[%s]{1,%d}$", alphabet, longest)
	in := regexp.MustCompile(pattern)
	return Text(want, func(s string) (string, error) {
		if !in.MatchString(s) {
			return "", ErrNot
		}
		return s, nil
	}).Like(pattern)
}

// Name labels metrics and fills columns, so it has no spaces.
func Name() Kind[string] { return name }

var name = Word("a name of 1 to 63 letters, digits and . _ : [ ] -", 63, `A-Za-z0-9._:\[\]-`).Eg("one")
