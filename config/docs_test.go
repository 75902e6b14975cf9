package config

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"proffer/schema/schematest"
	"proffer/topo"
)

// TestOperatorsFiles: the two files in the operators' guide can be used as they
// are, show every key, and say the defaults that they show.
func TestOperatorsFiles(t *testing.T) {
	doc, err := os.ReadFile("../docs/operate/farm.md")
	if err != nil {
		t.Fatal(err)
	}
	blocks := regexp.MustCompile("(?s)```yaml\n(.*?)```").FindAllStringSubmatch(string(doc), -1)
	if len(blocks) != 2 {
		t.Fatalf("%d files", len(blocks))
	}
	lb, agent := blocks[0][1], blocks[1][1]
	if _, err := ParseLB("lb.yaml", []byte(lb)); err != nil {
		t.Error(err)
	}
	if _, err := ParseAgent("agent.yaml", []byte(agent), cpus); err != nil {
		t.Error(err)
	}
	uncommented := func(s string) string { return strings.ReplaceAll(s, "# ", "") }
	schematest.Keys(t, "the LB's file", uncommented(lb), lbFile(new(topo.LB)))
	schematest.Keys(t, "the agent's file", uncommented(agent), agentFile(new(topo.Agent)))
	said := regexp.MustCompile(`(?m)^ *(\w+): ([^ \n]+) .*default (\S+)$`).FindAllStringSubmatch(lb+agent, -1)
	for _, m := range said {
		if m[2] != m[3] {
			t.Errorf("%s: shows %s beside the default %s", m[1], m[2], m[3])
		}
	}
	if len(said) < 8 {
		t.Errorf("only %d defaults were compared", len(said))
	}
}
