// Package schema reads and writes YAML by tables of keys, refusing everything that a table
// does not name. A table is a list of rows, each a key, its default, the field that its value
// is read into and written from, and its meaning:
//
//	func server(s *Server) []schema.Entry {
//		return []schema.Entry{
//			schema.Need("name", schema.Name().Into(&s.Name), "Name in counters."),
//			schema.Optional("weight", "1", schema.Whole(0, 65535).Into(&s.Weight), "Its share."),
//		}
//	}
//
// The reader, the writer, the error texts, the JSON Schemas, the examples and the documents'
// tables of keys walk the same rows. Every mistake has its line, column and key path, and the
// accepted values.
//
// The way of a file, and the order of this package's files:
//
//  1. yaml.go, colons.go: bytes → syntax tree, refusing files that could exhaust memory
//  2. cursor.go: a node of the tree, and the errors found there; suggest.go, error.go
//  3. entry.go: tables of keys read through cursors; retired.go: keys of earlier files
//  4. kind.go, values.go: the values of a key
//  5. write.go: the way back; publish.go, example.go, keytable.go: what is published of the rows
//
// It is pure: bytes come in, no file is opened and no clock is read. It knows none of
// the files that it reads: config and lab/farm hold the tables.
package schema
