package config

import _ "embed"

// The published JSON Schemas (draft 2020-12) of the files, for editors. They
// say less than the parser: duplicates and VIPs inside locators pass them.
var (
	//go:embed lb.schema.json
	LBSchema []byte
	//go:embed agent.schema.json
	AgentSchema []byte
	//go:embed edge.schema.json
	EdgeSchema []byte
	//go:embed nf.schema.json
	DatapathSchema []byte
)
