package schema

import (
	"strings"
	"unicode/utf8"

	"github.com/goccy/go-yaml/token"
)

// joinColons mends a mistake of the lexer: in a list inside a flow mapping it
// ends a key at every colon. A colon with text right behind it belongs to the text
// (YAML 1.2.2 §7.3.3), as in {domain: [5f00::/16]}; not so behind a quoted key.
func joinColons(tokens token.Tokens) token.Tokens {
	var out token.Tokens
	var open []token.Type // flow collections around the token
	for i := 0; i < len(tokens); i++ {
		t := tokens[i]
		switch t.Type {
		case token.MappingStartType, token.SequenceStartType:
			open = append(open, t.Type)
		case token.MappingEndType, token.SequenceEndType:
			open = open[:max(len(open)-1, 0)]
		case token.MappingValueType:
			inList := len(open) > 0 && open[len(open)-1] == token.SequenceStartType
			if !inList || i+1 == len(tokens) || !adjoin(t, tokens[i+1]) {
				break
			}
			last := len(out) - 1
			switch before := out[last]; {
			case adjoin(before, t):
				t = joined(before, joined(t, tokens[i+1]))
				out, i = out[:last], i+1
			case before.Type == token.SequenceStartType, before.Type == token.CollectEntryType:
				t = joined(t, tokens[i+1])
				i++
			}
		}
		out.Add(t)
	}
	return out
}

// adjoin reports whether b begins where a ends, neither being a quoted text nor a
// sign other than the colon.
func adjoin(a, b *token.Token) bool {
	plain := func(t *token.Token) bool {
		return t.Indicator == token.NotIndicator || t.Type == token.MappingValueType
	}
	from, to := positionOf(a), positionOf(b)
	return plain(a) && plain(b) && from.line == to.line && from.column+utf8.RuneCountInString(a.Value) == to.column
}

func joined(a, b *token.Token) *token.Token {
	return token.String(a.Value+b.Value, strings.TrimRight(a.Origin, " ")+b.Origin, a.Position)
}
