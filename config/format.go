package config

import (
	"proffer/schema"
	"proffer/topo"
)

// Format is the format of a configuration file.
type Format struct {
	Verb  string // of the command that reads it
	Title string
	table func() []schema.Entry
}

// Formats lists them.
func Formats() []Format {
	return []Format{
		{"lb", "load balancer", func() []schema.Entry { return lbFile(new(topo.LB)) }},
		{"agent", "agent, which runs on every server", func() []schema.Entry { return agentFile(new(topo.Agent)) }},
		{"edge", "edge load balancer", func() []schema.Entry { return edgeFile(new(topo.EdgeLB)) }},
		{"nf", "datapath node", func() []schema.Entry { return datapathFile(new(topo.Datapath)) }},
	}
}

// Schema is the JSON Schema (draft 2020-12), for editors. It says less than the parser: duplicates and
// VIPs inside locators pass it.
func (f Format) Schema() []byte {
	return schema.Publish("Proffer "+f.Title, "Configuration of `proffer "+f.Verb+"`.", f.table())
}

// Example is a file that can be used as it is, with every key.
func (f Format) Example() []byte { return schema.Example(f.table()) }

// Table is the keys in Markdown.
func (f Format) Table() string { return schema.Table(f.table()) }
