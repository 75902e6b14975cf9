package farm

import (
	"fmt"
	"strings"
	"unicode"

	"proffer/schema"
)

// span is the servers from first to last, which count from 0.
type span struct{ first, last int }

func (s span) spell() string {
	if s.first == s.last {
		return fmt.Sprint(s.first)
	}
	return fmt.Sprintf("%d-%d", s.first, s.last)
}

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
	}).Spelt(span.spell).Like("^[0-9]+(-[0-9]+)?$").Eg("0-9", "4")
}

func traceFile() schema.Kind[string] {
	const want = "the path of a trace file, relative to this one unless it begins with /"
	return schema.Text(want, func(s string) (string, error) {
		if s == "" || len(s) > 4095 || strings.ContainsFunc(s, unicode.IsControl) {
			return "", schema.ErrNot
		}
		return s, nil
	}).Eg("requests.csv")
}
