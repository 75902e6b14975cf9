// Package schema reads YAML by tables of keys, refusing everything that a table does
// not name. A table is a list of entries, each a key, its default and how its value is
// read into a field:
//
//	func server(s *Server) []schema.Entry {
//		return []schema.Entry{
//			schema.Need("name", schema.Name().Into(&s.Name)),
//			schema.Optional("weight", "1", schema.Whole(0, 65535).Into(&s.Weight)),
//		}
//	}
//
// The reader, the error texts and the tests of the published JSON Schemas walk the same
// tables. Every mistake has its line, column and key path, and the accepted values.
//
// The way of a file, and the order of this package's files:
//
//  1. yaml.go, colons.go: bytes → syntax tree, refusing files that could exhaust memory
//  2. cursor.go: a node of the tree, and the errors found there; suggest.go, error.go
//  3. entry.go: tables of keys read through cursors; retired.go: keys of earlier files
//  4. kind.go: the values of a key
//
// It is pure: bytes come in, no file is opened and no clock is read. It knows none of
// the files that it reads: config and lab/farm hold the tables.
package schema
