package farm

import (
	"strings"
	"unicode"

	"proffer/schema"
)

// span is the servers from first to last, which count from 0.
type span struct{ first, last int }

func serverNumbers() schema.Kind[span] {
	const want = "the number of a server, or of several such as 0-9; the first is 0"
	n := schema.Whole(0, MaxServers-1)
	return schema.TextOrNumber(want, func(s string) (span, error) {
		from, to, several := strings.Cut(s, "-")
		if !several {
			to = from
		}
		first, err := n.Read(from)
		last, bad := n.Read(to)
		if err != nil || bad != nil || last < first {
			return span{}, schema.ErrNot
		}
		return span{first, last}, nil
	})
}

func traceFile() schema.Kind[string] {
	const want = "the path of a trace file, relative to this one unless it begins with /"
	return schema.Text(want, func(s string) (string, error) {
		if s == "" || len(s) > 4095 || strings.ContainsFunc(s, unicode.IsControl) {
			return "", schema.ErrNot
		}
		return s, nil
	})
}
