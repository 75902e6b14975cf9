package config

import _ "embed"

// The published JSON Schemas (draft 2020-12) of the three files, for editors. They
// say less than the parser: duplicates and VIPs inside locators pass them.
var (
	//go:embed lb.schema.json
	LBSchema []byte
	//go:embed agent.schema.json
	AgentSchema []byte
	//go:embed farm.schema.json
	FarmSchema []byte
)

// FarmExample is a farm file with a comment at every key.
//
//go:embed farm.example.yaml
var FarmExample []byte
