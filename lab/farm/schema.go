package farm

import (
	_ "embed"

	"proffer/schema"
)

// Schema is the JSON Schema (draft 2020-12) of a farm file, for editors. It checks less than
// the parser.
func Schema() []byte {
	return schema.Publish("Proffer farm to simulate", "A farm for `proffer-lab sim --farm FILE`.", table(new(File)))
}

// Example is a farm file with a comment at every key.
//
//go:embed farm.example.yaml
var Example []byte
