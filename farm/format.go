package farm

import "proffer/schema"

// Schema is the JSON Schema (draft 2020-12), for editors. It says less than the parser.
func Schema() []byte {
	return schema.Publish("Proffer farm", "A farm: the file of `proffer run` and `proffer check`.", table(new(Farm)))
}

// Example is a file with every key.
func Example() []byte { return schema.Example(table(new(Farm))) }

// Table is the keys in Markdown.
func Table() string { return schema.Table(table(new(Farm))) }
