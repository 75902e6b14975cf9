package farm

import _ "embed"

// Schema is the published JSON Schema (draft 2020-12) of a farm file, for editors. It
// checks less than the parser.
//
//go:embed farm.schema.json
var Schema []byte

// Example is a farm file with a comment at every key.
//
//go:embed farm.example.yaml
var Example []byte
