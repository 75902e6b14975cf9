package config

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"proffer/schema/schematest"
)

// TestRows: each key of each file is read and written.
func TestRows(t *testing.T) {
	schematest.Rows(t, lbFile, "topo.Node.Keys", "topo.Node.Near", "topo.FlowTable.Embryonic")
	schematest.Rows(t, agentFile, "topo.Node.Keys", "topo.Node.Near")
	schematest.Rows(t, edgeFile, "topo.FlowTable.Embryonic", "topo.FlowTable.Linger", "topo.EdgeService.Instances")
	schematest.Rows(t, datapathFile, "topo.User.Run") // which has one value
}

// TestExamples: each can be used as it is.
func TestExamples(t *testing.T) {
	for _, f := range Formats() {
		if err := parsers[f.Verb](f.Example()); err != nil {
			t.Errorf("%v\n%s", err, f.Example())
		}
	}
}

// parsers read the file of a verb.
var parsers = map[string]func([]byte) error{
	"lb":    func(text []byte) error { _, err := ParseLB("lb.yaml", text); return err },
	"agent": func(text []byte) error { _, err := ParseAgent("agent.yaml", text, cpus); return err },
	"edge":  func(text []byte) error { _, err := ParseEdge("edge.yaml", text); return err },
	"nf":    func(text []byte) error { _, err := ParseDatapath("nf.yaml", text); return err },
}

// TestDocs holds docs/operate/keys.md and the files in docs/operate/edge.md to the rows; -update writes them.
func TestDocs(t *testing.T) {
	files, keys := map[string]string{}, "# Keys\n\nEvery key of the configuration files, written by `go test ./config -update`.\n"
	for _, f := range Formats() {
		files[f.Verb] = "```yaml\n" + string(f.Example()) + "```"
		keys += fmt.Sprintf("\n## proffer %s\n\n%s", f.Verb, f.Table())
	}
	written(t, "../docs/operate/keys.md", keys)
	const guide = "../docs/operate/edge.md"
	verbs, blocks := []string{"edge", "nf"}, 0
	text := regexp.MustCompile("(?s)```yaml\n.*?```").ReplaceAllStringFunc(readFile(t, guide), func(string) string {
		blocks++
		return files[verbs[(blocks-1)%len(verbs)]]
	})
	if blocks != len(verbs) {
		t.Errorf("%s has %d files", guide, blocks)
	}
	written(t, guide, text)
}

// written: a file is want, or becomes it with -update.
func written(t *testing.T, file, want string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(file, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if got := readFile(t, file); got != want {
		t.Errorf("%s differs from the rows; run `go test ./config -update`", file)
	}
}

// TestSchemas: a validator takes the JSON Schemas as the parser takes the rows.
func TestSchemas(t *testing.T) {
	schemas := map[string][]byte{}
	for _, f := range Formats() {
		schemas[f.Verb] = f.Schema()
	}
	validate := schematest.Valid(t, "lb.json", schemas["lb"], lbFile)
	good := string(schematest.Read(t, "lb.yaml"))
	for was, is := range map[string]string{
		"choices: 3":     "choices: 3",                         // with hunt
		"choices: 3\n":   "choices: 5\n",                       // too many
		"dispatch: hunt": "dispatch: single",                   // with choices
		"delivery: l2":   "delivery: l2, vni: 100",             // of another delivery
		"name: web":      "name: a b",                          // no name
		"idle: 90s":      "idle: soon",                         // no duration
		"version: 7":     "version: 7\n    learn_every: 500ms", // with hunt
	} {
		if err := validate(strings.Replace(good, was, is, 1)); (err == nil) != (was == is) {
			t.Errorf("%s in the place of %s: %v", is, was, err)
		}
	}
	schematest.Valid(t, "agent.json", schemas["agent"], agentFile)
	schematest.Valid(t, "edge.json", schemas["edge"], edgeFile)
	schematest.Valid(t, "nf.json", schemas["nf"], datapathFile)
}
