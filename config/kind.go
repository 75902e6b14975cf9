package config

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"proffer/policy"
	"proffer/topo"
)

// A kind is a sort of scalar: the accepted values in words, the forms it may be
// written in, and its meaning. errNot adds nothing to want; any other error is a
// further hint.
type kind[T any] struct {
	want  string
	forms []form
	read  func(string) (T, error)
}

var errNot = errors.New("is not an accepted value")

// Forms of a scalar. Exponents (1e-3) are text to the YAML parser.
var (
	asText   = []form{text, quoted}
	asNumber = []form{number, text}
	asEither = []form{text, quoted, number}
)

// scalar reads a value of a kind into dst.
func scalar[T any](dst *T, k kind[T]) value {
	return assign(k, func(v T) { *dst = v })
}

// assign reads a value of a kind and hands it to set.
func assign[T any](k kind[T], set func(T)) value {
	read := func(c cursor) {
		if f := c.form(); !slices.Contains(k.forms, f) {
			c.fail("is %s; want %s", f, k.want)
			return
		}
		v, err := k.read(c.literal())
		now, was := renamed(c.last(), c.literal())
		switch {
		case err != nil && was:
			c.fail("%s", renamedTo(c.literal(), now))
		case err != nil && c.hidden:
			c.fail("is not %s", k.want)
		case err != nil:
			c.fail("%s", k.refusal(c.literal(), err))
		default:
			set(v)
		}
	}
	return value{want: k.want, read: read}
}

// refusal is the error text for a value that read refused with err.
func (k kind[T]) refusal(written string, err error) string {
	if errors.Is(err, errNot) {
		return fmt.Sprintf("%s is not %s", shown(written), k.want)
	}
	return fmt.Sprintf("%s %v; want %s", shown(written), err, k.want)
}

// secret reads a value that no error may repeat.
func secret[T any](dst *T, k kind[T]) value {
	v := scalar(dst, k)
	return value{want: v.want, read: func(c cursor) {
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

// oneOf accepts the spellings of some constants.
func oneOf[T fmt.Stringer](choices ...T) kind[T] {
	words := make([]string, len(choices))
	for i, c := range choices {
		words[i] = c.String()
	}
	return kind[T]{"one of " + strings.Join(words, ", "), asText, func(s string) (T, error) {
		if i := slices.Index(words, s); i >= 0 {
			return choices[i], nil
		}
		var none T
		return none, errNot
	}}
}

// whole accepts a whole number in plain decimal digits: 010 is 8 to one reader
// of YAML and 10 to the next.
func whole(least, most int) kind[int] {
	want := fmt.Sprintf("a whole number from %d to %d", least, most)
	return kind[int]{want, asNumber, func(s string) (int, error) {
		n, err := strconv.Atoi(s)
		if err != nil || strconv.Itoa(n) != s || n < least || n > most {
			return 0, errNot
		}
		return n, nil
	}}
}

func fraction(least, most float64) kind[float64] {
	want := fmt.Sprintf("a number from %v to %v", least, most)
	return kind[float64]{want, asNumber, func(s string) (float64, error) {
		v, err := strconv.ParseFloat(s, 64)
		if err != nil || !(v >= least && v <= most) || strings.ContainsAny(s, "xX_") {
			return 0, errNot
		}
		return v + 0, nil // -0 becomes 0
	}}
}

func port() kind[uint16] {
	n := whole(1, 65535)
	return kind[uint16]{n.want, n.forms, func(s string) (uint16, error) {
		v, err := n.read(s)
		return uint16(v), err
	}}
}

func duration() kind[time.Duration] {
	return kind[time.Duration]{"a duration above 0 such as 10s, 5m or 1h30m", asEither, func(s string) (time.Duration, error) {
		d, err := time.ParseDuration(s)
		if err != nil || d <= 0 {
			return 0, errNot
		}
		return d, nil
	}}
}

// within accepts durations between two bounds.
func within(least, most time.Duration) kind[time.Duration] {
	want := fmt.Sprintf("a duration from %s to %s", short(least), short(most))
	return kind[time.Duration]{want, asEither, func(s string) (time.Duration, error) {
		d, err := time.ParseDuration(s)
		if err != nil || d < least || d > most {
			return 0, errNot
		}
		return d, nil
	}}
}

// short drops the zeros of 1h0m0s.
func short(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

// span is the servers from first to last, which count from 0.
type span struct{ first, last int }

func serverNumbers() kind[span] {
	const want = "the number of a server, or of several such as 0-9; the first is 0"
	n := whole(0, MaxFarm-1)
	return kind[span]{want, asEither, func(s string) (span, error) {
		from, to, several := strings.Cut(s, "-")
		if !several {
			to = from
		}
		first, err := n.read(from)
		last, bad := n.read(to)
		if err != nil || bad != nil || last < first {
			return span{}, errNot
		}
		return span{first, last}, nil
	}}
}

func traceFile() kind[string] {
	const want = "the path of a trace file, relative to this one unless it begins with /"
	return kind[string]{want, asText, func(s string) (string, error) {
		if s == "" || len(s) > 4095 || strings.ContainsFunc(s, unicode.IsControl) {
			return "", errNot
		}
		return s, nil
	}}
}

// word accepts 1 to longest bytes that are all in an alphabet.
func word(want string, longest int, in func(rune) bool) kind[string] {
	return kind[string]{want, asText, func(s string) (string, error) {
		if s == "" || len(s) > longest || strings.ContainsFunc(s, func(r rune) bool { return !in(r) }) {
			return "", errNot
		}
		return s, nil
	}}
}

// name labels metrics and fills columns, so it has no spaces.
func name() kind[string] {
	return word("a name of 1 to 63 letters, digits and . _ : [ ] -", 63, func(r rune) bool {
		return 'A' <= r && r <= 'Z' || 'a' <= r && r <= 'z' || '0' <= r && r <= '9' || strings.ContainsRune("._:[]-", r)
	})
}

// link is a name that the kernel accepts for an interface (dev_valid_name).
func link() kind[string] {
	return word("the name of a network interface such as eth0", 15, func(r rune) bool {
		return '!' <= r && r <= '~' && r != '/' && r != ':'
	})
}

// file is an absolute path of at most longest bytes.
func file(want string, longest int) kind[string] {
	return kind[string]{want, asText, func(s string) (string, error) {
		if !path.IsAbs(s) || path.Clean(s) != s || s == "/" || len(s) > longest {
			return "", errNot
		}
		return s, nil
	}}
}

// socket fits sockaddr_un with its final zero (unix(7)).
func socket() kind[string] {
	return file("an absolute path of at most 107 bytes such as /run/proffer/lb.sock", 107)
}

// pin is a directory of a bpffs, which keeps dots in names to itself (kernel,
// bpf_lookup). Where it is mounted may have some.
func pin() kind[string] {
	k := file("an absolute path in a BPF file system such as /sys/fs/bpf/proffer/lb", 4095)
	absolute := k.read
	k.read = func(s string) (string, error) {
		if strings.Contains(path.Base(s), ".") {
			return "", errors.New("has a dot in its last part, which a BPF file system refuses")
		}
		return absolute(s)
	}
	return k
}

func keyFile() kind[string] {
	return file("the absolute path of the file of signal keys, such as /etc/proffer/signal.keys", 4095)
}

func page() kind[string] {
	return file("the absolute path of the page that holds the load, such as /run/proffer/web.load", 4095)
}

// decision is how an agent accepts, with the threshold when it is static.
type decision struct {
	acceptance topo.Acceptance
	threshold  int
}

func acceptance() kind[decision] {
	var words []string
	for _, a := range topo.Acceptances() {
		word := a.Pattern()
		if a.Row().Threshold {
			word += fmt.Sprintf(" with C from 0 to %d", topo.MaxThreshold)
		}
		words = append(words, word)
	}
	want := either(words)
	return kind[decision]{want, asText, func(s string) (decision, error) {
		a, threshold, err := policy.ParseAcceptance(s)
		if err != nil {
			return decision{}, errNot
		}
		return decision{a, threshold}, nil
	}}
}

// ownership is where an agent looks up the owner of a flow.
type ownership struct {
	owner topo.Owner
	netns string
}

func owner() kind[ownership] {
	const want = "socket, table, or netns PATH with the absolute path of a network namespace such as /run/netns/web"
	namespace := file("", 4095)
	return kind[ownership]{want, asText, func(s string) (ownership, error) {
		path, elsewhere := strings.CutPrefix(s, topo.Netns.String()+" ")
		switch {
		case elsewhere:
			path, err := namespace.read(path)
			return ownership{topo.Netns, path}, err
		case s == topo.Socket.String():
			return ownership{owner: topo.Socket}, nil
		case s == topo.Table.String():
			return ownership{owner: topo.Table}, nil
		default:
			return ownership{}, errNot
		}
	}}
}
