package schema

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"
)

// Document is a file while it is read: the positions of its values and
// its mistakes.
type Document struct {
	File    string // only a name for errors
	Hidden  bool   // it holds secrets, which no error may repeat
	Retired []Retired
	Most    int // mistakes that Err has; 0: as many as a screen

	Warnings []*Error // that let the file be used, in any order

	where    map[string]position // key path → its value
	trace    func(string) string // a key path of a derived file → that of this file
	mistakes []*Error
}

// Parse reads the file by the table of its keys. Its mistakes come out of Err.
func (d *Document) Parse(data []byte, keys []Entry) {
	d.where = map[string]position{}
	node, fault := root(data)
	switch {
	case fault != nil && d.Hidden:
		d.fail(fault.at, "", fault.problem)
	case fault != nil:
		d.fail(fault.at, "", fault.problem+fault.detail)
	case node == nil:
		d.fail(start, "", "the file is empty; want a mapping with "+knownKeys(keys))
	default:
		Mapping(keys).read(cursor{doc: d, node: node, at: nodeStart(node), hidden: d.Hidden})
	}
}

// OK reports whether no mistake was found so far.
func (d *Document) OK() bool { return len(d.mistakes) == 0 }

// Err joins an *Error for each mistake found, in the order of the file.
func (d *Document) Err() error { return join(d.mistakes, cmp.Or(d.Most, maxErrors)) }

// Warnf adds a warning at a key path.
func (d *Document) Warnf(key, format string, args ...any) {
	d.Warnings = append(d.Warnings, d.Mistake(key, fmt.Sprintf(format, args...)))
}

// Right reports whether no mistake stands at a key path or below it.
func (d *Document) Right(key string) bool {
	return !slices.ContainsFunc(d.mistakes, func(e *Error) bool {
		rest, below := strings.CutPrefix(e.Key, key)
		return below && (rest == "" || rest[0] == '.' || rest[0] == '[')
	})
}

// Failf adds a mistake that no single value shows, at a key path.
func (d *Document) Failf(key, format string, args ...any) {
	d.mistakes = append(d.mistakes, d.Mistake(key, fmt.Sprintf(format, args...)))
}

// Mistake is an error at a key path, such as "arrivals.file".
func (d *Document) Mistake(key, problem string) *Error {
	key = d.Key(key)
	at := d.locate(key)
	return &Error{d.File, at.line, at.column, key, problem}
}

// Given reports whether the file has a key path.
func (d *Document) Given(key string) bool {
	_, given := d.where[d.Key(key)]
	return given
}

// Line is that of the value of a key path.
func (d *Document) Line(key string) int { return d.locate(d.Key(key)).line }

// Key is the key path that the file has for a key of a file that is derived from it.
func (d *Document) Key(key string) string {
	if d.trace == nil {
		return key
	}
	return d.trace(key)
}

// Derived checks a file that is derived from this file: trace leads from its key paths to those of this file. Of its
// mistakes those are added that are kept, by their key path here, and do not stand here already.
func (d *Document) Derived(trace func(string) string, keep func(key string) bool, check func(*Document)) {
	derived := &Document{File: d.File, Hidden: d.Hidden, where: d.where, trace: trace}
	check(derived)
	for _, m := range derived.mistakes {
		if keep(m.Key) && !slices.ContainsFunc(d.mistakes, func(o *Error) bool { return *o == *m }) {
			d.mistakes = append(d.mistakes, m)
		}
	}
}

func (d *Document) fail(at position, key, problem string) {
	d.mistakes = append(d.mistakes, &Error{d.File, at.line, at.column, key, problem})
}

// locate finds the value of a key path. A value that is there only by default
// stands at the mapping that lacks it.
func (d *Document) locate(key string) position {
	for key != "" {
		if at, known := d.where[key]; known {
			return at
		}
		key = key[:max(strings.LastIndexAny(key, ".["), 0)]
	}
	return start
}

// cursor is a position in a document: a node and the path of keys that leads to it.
type cursor struct {
	doc  *Document
	path string
	node ast.Node
	at   position

	hidden bool // no error may repeat the text here
}

func (c cursor) fail(format string, args ...any) {
	if c.path == "" {
		format = "the file " + format
	}
	c.doc.fail(c.at, c.path, fmt.Sprintf(format, args...))
}

// key is the path of a key of this mapping.
func (c cursor) key(name string) string {
	if c.path == "" {
		return name
	}
	return c.path + "." + name
}

// child moves to a node inside this node and remembers where it stands.
func (c cursor) child(path string, node ast.Node) cursor {
	next := cursor{c.doc, path, node, nodeStart(node), c.hidden}
	c.doc.where[path] = next.at
	return next
}

// absent stands for a value that is not in the file: text, as a user would
// write it, at the position of the mapping that lacks it.
func (c cursor) absent(name, text string) cursor {
	file, err := parser.ParseBytes([]byte(text), 0)
	if err != nil {
		panic(fmt.Sprintf("schema: default of %s: %v", name, err)) // our own table is wrong
	}
	return cursor{c.doc, c.key(name), file.Docs[0].Body, c.at, c.hidden}
}

// form is the shape of a value in YAML, before its meaning.
type form string

const (
	text    form = "text"
	quoted  form = "quoted text"
	number  form = "a number"
	boolean form = "a boolean"
	empty   form = "empty"
	list    form = "a list"
	object  form = "a mapping"
	block   form = "a block of text"
	marked  form = "an anchor, alias or tag, which are not supported"
	unknown form = "not a plain value"
)

func (c cursor) form() form {
	switch n := c.node.(type) {
	case *ast.StringNode:
		if t := n.Token.Type; t == token.SingleQuoteType || t == token.DoubleQuoteType {
			return quoted
		}
		return text
	case *ast.IntegerNode, *ast.FloatNode, *ast.InfinityNode, *ast.NanNode:
		return number
	case *ast.BoolNode:
		return boolean
	case *ast.NullNode:
		return empty
	case *ast.SequenceNode:
		return list
	case *ast.MappingNode, *ast.MappingValueNode:
		return object
	case *ast.LiteralNode:
		return block
	case *ast.AnchorNode, *ast.AliasNode, *ast.TagNode:
		return marked
	default:
		return unknown
	}
}

// literal is a scalar as it is written, without its quotes.
func (c cursor) literal() string {
	if s, ok := c.node.(*ast.StringNode); ok {
		return s.Value
	}
	return c.node.GetToken().Value
}

// pairs are the key-value pairs of a mapping.
func (c cursor) pairs() []*ast.MappingValueNode {
	switch n := c.node.(type) {
	case *ast.MappingNode:
		return n.Values
	case *ast.MappingValueNode:
		return []*ast.MappingValueNode{n}
	default:
		return nil
	}
}

// items are the elements of a list, fewest to most of them. Any other
// value is refused.
func (c cursor) items(fewest, most int, want string) (items []cursor, ok bool) {
	s, ok := c.node.(*ast.SequenceNode)
	if !ok {
		c.fail("is %s; want %s", c.form(), want)
		return nil, false
	}
	if n := len(s.Values); n < fewest || n > most {
		c.fail("has %d elements; want %s", n, want)
		return nil, false
	}
	for i, node := range s.Values {
		items = append(items, c.child(fmt.Sprintf("%s[%d]", c.path, i), node))
	}
	return items, true
}
