package config

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"proffer/schema/schematest"
	"proffer/topo"
)

// TestEdgeFiles: the two files in docs/operate/edge.md can be used as they are, and show every key
// but those of functions that have no words there.
func TestEdgeFiles(t *testing.T) {
	doc, err := os.ReadFile("../docs/operate/edge.md")
	if err != nil {
		t.Fatal(err)
	}
	blocks := regexp.MustCompile("(?s)```yaml\n(.*?)```").FindAllStringSubmatch(string(doc), -1)
	if len(blocks) != 2 {
		t.Fatalf("%d files", len(blocks))
	}
	lb, node := blocks[0][1], blocks[1][1]
	if _, err := ParseEdge("edge.yaml", []byte(lb)); err != nil {
		t.Error(err)
	}
	if _, err := ParseDatapath("nf.yaml", []byte(node)); err != nil {
		t.Error(err)
	}
	schematest.Keys(t, "the edge LB's file", lb, edgeFile(new(topo.EdgeLB)))
	schematest.Keys(t, "the node's file", node, datapathFile(new(topo.Datapath), new([]chain)))
	said := regexp.MustCompile(`(?m)^ *(?:- )?(\w+): ([^ \n]+) .*default (\S+)$`).FindAllStringSubmatch(lb+node, -1)
	for _, m := range said {
		if strings.Trim(m[2], `"`) != m[3] {
			t.Errorf("%s: shows %s beside the default %s", m[1], m[2], m[3])
		}
	}
	if len(said) < 9 {
		t.Errorf("only %d defaults were compared", len(said))
	}
}
