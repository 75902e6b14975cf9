package config

import (
	"encoding/hex"
	"errors"
	"fmt"
	"net/netip"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"proffer/policy"
	"proffer/topo"
)

// A kind is one sort of scalar: what it accepts in words, in which forms it may
// be written, and its meaning. errNot means that want says it all; any other
// error is a hint more.
type kind[T any] struct {
	want  string
	forms []form
	read  func(string) (T, error)
}

var errNot = errors.New("is not what is wanted")

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
		written := c.literal()
		v, err := k.read(written)
		switch {
		case errors.Is(err, errNot):
			c.fail("%s is not %s", shown(written), k.want)
		case err != nil:
			c.fail("%s %v; want %s", shown(written), err, k.want)
		default:
			set(v)
		}
	}
	return value{want: k.want, read: read}
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

// matching accepts text that a pattern matches as a whole.
func matching(want, pattern string) kind[string] {
	re := regexp.MustCompile(`^(?:` + pattern + `)$`)
	return kind[string]{want, asText, func(s string) (string, error) {
		if !re.MatchString(s) {
			return "", errNot
		}
		return s, nil
	}}
}

// name labels metrics and fills columns, so it has no spaces.
func name() kind[string] {
	return matching("a name of 1 to 63 letters, digits and . _ : [ ] -", `[A-Za-z0-9._:\[\]-]{1,63}`)
}

// link is what the kernel accepts as an interface's name (dev_valid_name).
func link() kind[string] {
	return matching("the name of a network interface such as eth0", `[!-.0-9;-~]{1,15}`)
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

func page() kind[string] {
	return file("the absolute path of the page that holds the load, such as /run/proffer/web.load", 4095)
}

func candidateKey() kind[topo.Key] {
	const want = "32 hex digits, the same on every LB; make one with `openssl rand -hex 16`"
	return kind[topo.Key]{want, asEither, func(s string) (key topo.Key, err error) {
		b, err := hex.DecodeString(s)
		if err != nil || len(b) != len(key) {
			return key, errNot
		}
		return topo.Key(b), nil
	}}
}

func locator() kind[netip.Prefix] {
	const want = "an IPv6 /64 prefix such as 5f00:0:1:1::/64"
	return kind[netip.Prefix]{want, asText, func(s string) (netip.Prefix, error) {
		p, err := netip.ParsePrefix(s)
		if err != nil || !p.Addr().Is6() || p.Bits() != 64 {
			return netip.Prefix{}, errNot
		}
		if p != p.Masked() {
			return netip.Prefix{}, fmt.Errorf("has bits behind the prefix (write %s)", p.Masked())
		}
		if scope := unusable(p.Addr()); scope != "" {
			return netip.Prefix{}, errors.New("is " + scope)
		}
		return p, nil
	}}
}

func vip() kind[netip.Addr] {
	const want = "an IPv6 address that clients can reach, such as 2001:db8:f::1"
	return kind[netip.Addr]{want, asText, func(s string) (netip.Addr, error) {
		a, err := netip.ParseAddr(s)
		switch {
		case err != nil || a.Zone() != "":
			return netip.Addr{}, errNot
		case a.Is4() || a.Is4In6():
			return netip.Addr{}, errors.New("is IPv4, which is not supported yet")
		case unusable(a) != "":
			return netip.Addr{}, errors.New("is " + unusable(a))
		}
		return a, nil
	}}
}

// unusable names the scope of an address that no other host can be reached at.
func unusable(a netip.Addr) string {
	switch {
	case a.IsUnspecified():
		return "unspecified"
	case a.IsLoopback():
		return "loopback"
	case a.IsLinkLocalUnicast():
		return "link-local"
	case a.IsMulticast():
		return "multicast"
	default:
		return ""
	}
}

// decision is how an agent accepts, with the threshold when it is static.
type decision struct {
	acceptance topo.Acceptance
	threshold  int
}

func acceptance() kind[decision] {
	want := fmt.Sprintf("always, static:C with C from 0 to %d, or dynamic", policy.MaxThreshold)
	return kind[decision]{want, asText, func(s string) (decision, error) {
		a, threshold, err := policy.ParseAcceptance(s)
		if err != nil {
			return decision{}, errNot
		}
		return decision{a, threshold}, nil
	}}
}
