package schema

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"unicode/utf8"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/lexer"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"
)

// Limits that no honest file meets: the largest, of an LB, lists 4096 servers
// of three keys in a service and in each of its 32 pools before. The parser recurses
// into nesting and its time is quadratic in the keys of a mapping in block style.
const (
	maxBytes     = 12 << 20
	maxKeys      = 1 << 19
	maxBlockKeys = 1024
	maxNesting   = 64
)

// root reads the value of a YAML file, nil if there is none, or fails at the
// position of a mistake.
func root(data []byte) (ast.Node, *fault) {
	data = bytes.TrimPrefix(data, []byte("\ufeff")) // YAML 1.2 §5.2
	if f := textFault(data); f != nil {
		return nil, f
	}
	tokens := lexer.Tokenize(string(data))
	if f := sizeFault(tokens); f != nil {
		return nil, f
	}
	file, err := parser.Parse(joinColons(tokens), 0, parser.AllowDuplicateMapKey())
	if err != nil {
		return nil, syntaxFault(err)
	}
	return onlyDocument(file)
}

// fault is a mistake before it has a file name and a key.
type fault struct {
	at      position
	problem string
	detail  string // may repeat the file's text
}

func refuse(at position, format string, args ...any) *fault {
	return &fault{at: at, problem: fmt.Sprintf(format, args...)}
}

// position is a line and column of the file, both from 1.
type position struct{ line, column int }

var start = position{1, 1}

func textFault(data []byte) *fault {
	if len(data) > maxBytes {
		return refuse(start, "the file has %d bytes; want at most %d", len(data), maxBytes)
	}
	line, column := 1, 1
	for rest := data; len(rest) > 0; {
		r, size := utf8.DecodeRune(rest)
		switch {
		case r == utf8.RuneError && size == 1, r < ' ' && r != '\n' && r != '\r' && r != '\t', r == 0x7f:
			return refuse(position{line, column}, "byte %#02x is not text; want UTF-8 without control characters", rest[0])
		case r == '\n':
			line, column = line+1, 1
		default:
			column++
		}
		rest = rest[size:]
	}
	return nil
}

// sizeFault bounds the work of the parser. Anchors, tags and explicit keys are
// refused later, with their key; here they only count as nesting, which they are.
func sizeFault(tokens token.Tokens) *fault {
	keys, open, prefixes := 0, 0, 0
	var blocks blockKeys
	for _, t := range tokens {
		blocks.see(t)
		switch t.Type {
		case token.MappingValueType:
			keys++
			if open == 0 && blocks.add() > maxBlockKeys {
				return refuse(positionOf(t), "more than %d keys in one mapping", maxBlockKeys)
			}
		case token.MappingStartType, token.SequenceStartType:
			open++
		case token.MappingEndType, token.SequenceEndType:
			open--
		case token.AnchorType, token.AliasType, token.TagType, token.MappingKeyType, token.DirectiveType, token.DocumentHeaderType, token.DocumentEndType:
			prefixes++
		}
		if keys > maxKeys {
			return refuse(positionOf(t), "more than %d keys", maxKeys)
		}
		if open+prefixes > maxNesting || blockDepth(t) > maxNesting {
			return refuse(positionOf(t), "nested more than %d deep", maxNesting)
		}
	}
	return nil
}

// blockKeys counts the keys of the block mappings that a token stands in. Those
// of a mapping begin in the same column.
type blockKeys struct {
	line   int
	column int // of the line's first token that is no "-"
	counts map[int]int
}

func (b *blockKeys) see(t *token.Token) {
	at := positionOf(t)
	if t.Type == token.SequenceEntryType {
		b.end(at.column + 1) // another element: other mappings
		b.line = 0
		return
	}
	if at.line != b.line {
		b.line, b.column = at.line, at.column
	}
}

// add counts a key on the line that was seen last.
func (b *blockKeys) add() int {
	b.end(b.column + 1)
	b.counts[b.column]++
	return b.counts[b.column]
}

// end forgets the mappings that begin in a column or to the right of it.
func (b *blockKeys) end(column int) {
	if b.counts == nil {
		b.counts = map[int]int{}
	}
	maps.DeleteFunc(b.counts, func(c, _ int) bool { return c >= column })
}

// blockDepth counts the "- - -" up to t. Deeper blocks of other kinds need a
// line each, and the size of the file bounds those.
func blockDepth(t *token.Token) int {
	depth := 0
	for t != nil && t.Type == token.SequenceEntryType && depth <= maxNesting {
		depth, t = depth+1, t.Prev
	}
	return depth
}

func syntaxFault(err error) *fault {
	var syntax yaml.Error
	if !errors.As(err, &syntax) {
		return &fault{start, "not YAML", ": " + err.Error()}
	}
	return &fault{positionOf(syntax.GetToken()), "not YAML", ": " + syntax.GetMessage()}
}

// onlyDocument is the body of the only document of a file, nil if it is empty.
func onlyDocument(file *ast.File) (ast.Node, *fault) {
	var body ast.Node
	documents := 0
	for _, doc := range file.Docs {
		if doc.Body == nil && doc.Start == nil {
			continue
		}
		if _, directive := doc.Body.(*ast.DirectiveNode); directive {
			return nil, refuse(nodeStart(doc.Body), "a YAML directive is not supported; remove it")
		}
		if documents++; documents > 1 {
			return nil, refuse(documentStart(doc), "a second YAML document begins here; want one")
		}
		body = doc.Body
	}
	return body, nil
}

func documentStart(doc *ast.DocumentNode) position {
	if doc.Start != nil {
		return positionOf(doc.Start)
	}
	return nodeStart(doc.Body)
}

func positionOf(t *token.Token) position {
	if t == nil || t.Position == nil {
		return start
	}
	return position{max(t.Position.Line, 1), max(t.Position.Column, 1)}
}

// nodeStart is where a reader looks for a node: at its first key, not at the
// colon behind it, which the parser calls the start of a mapping.
func nodeStart(node ast.Node) position {
	if m, ok := node.(*ast.MappingNode); ok && !m.IsFlowStyle && len(m.Values) > 0 {
		return nodeStart(m.Values[0].Key)
	}
	return positionOf(node.GetToken())
}
