package config

import (
	"errors"
	"fmt"
	"unicode/utf8"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/lexer"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"
)

// Limits that no honest file meets. The parser recurses into nesting and its
// time is quadratic in the keys of one mapping.
const (
	maxBytes   = 1 << 20
	maxKeys    = 16_384
	maxNesting = 64
)

// root reads the one value of a YAML file, nil if there is none, or fails at the
// place that is wrong.
func root(data []byte) (ast.Node, *fault) {
	if f := textFault(data); f != nil {
		return nil, f
	}
	tokens := lexer.Tokenize(string(data))
	if f := sizeFault(tokens); f != nil {
		return nil, f
	}
	file, err := parser.Parse(tokens, 0, parser.AllowDuplicateMapKey())
	if err != nil {
		return nil, syntaxFault(err)
	}
	return onlyDocument(file)
}

// fault is a mistake before it has a file name and a key.
type fault struct {
	at      position
	problem string
}

// position is a place in the file: line and column, both from 1.
type position struct{ line, column int }

var start = position{1, 1}

func textFault(data []byte) *fault {
	if len(data) > maxBytes {
		return &fault{start, fmt.Sprintf("the file has %d bytes; want at most %d", len(data), maxBytes)}
	}
	line, column := 1, 1
	for rest := data; len(rest) > 0; {
		r, size := utf8.DecodeRune(rest)
		switch {
		case r == utf8.RuneError && size == 1, r < ' ' && r != '\n' && r != '\r' && r != '\t', r == 0x7f:
			return &fault{position{line, column}, fmt.Sprintf("byte %#02x is not text; want UTF-8 without control characters", rest[0])}
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
	for _, t := range tokens {
		switch t.Type {
		case token.MappingValueType:
			keys++
		case token.MappingStartType, token.SequenceStartType:
			open++
		case token.MappingEndType, token.SequenceEndType:
			open--
		case token.AnchorType, token.AliasType, token.TagType, token.MappingKeyType, token.DirectiveType, token.DocumentHeaderType, token.DocumentEndType:
			prefixes++
		}
		if keys > maxKeys {
			return &fault{positionOf(t), fmt.Sprintf("more than %d keys", maxKeys)}
		}
		if open+prefixes > maxNesting || blockDepth(t) > maxNesting {
			return &fault{positionOf(t), fmt.Sprintf("nested more than %d deep", maxNesting)}
		}
	}
	return nil
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
		return &fault{start, "not YAML: " + err.Error()}
	}
	return &fault{positionOf(syntax.GetToken()), "not YAML: " + syntax.GetMessage()}
}

// onlyDocument is the body of the one document of a file, nil if it is empty.
func onlyDocument(file *ast.File) (ast.Node, *fault) {
	var body ast.Node
	documents := 0
	for _, doc := range file.Docs {
		if doc.Body == nil && doc.Start == nil {
			continue
		}
		if _, directive := doc.Body.(*ast.DirectiveNode); directive {
			return nil, &fault{nodeStart(doc.Body), "a YAML directive is not supported; remove it"}
		}
		if documents++; documents > 1 {
			return nil, &fault{documentStart(doc), "a second YAML document begins here; want one"}
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
// colon behind it, which is what the parser calls the start of a mapping.
func nodeStart(node ast.Node) position {
	if m, ok := node.(*ast.MappingNode); ok && !m.IsFlowStyle && len(m.Values) > 0 {
		return nodeStart(m.Values[0].Key)
	}
	return positionOf(node.GetToken())
}
