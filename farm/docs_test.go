package farm

import (
	"os"
	"strings"
	"testing"
)

// page is the operators' guide to the file.
const page = "../docs/operate/farm-file.md"

// TestDocs holds the page's table of keys to the rows, which -update writes, and reads its file.
func TestDocs(t *testing.T) {
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	const heading = "## Keys\n\n"
	guide, _, there := strings.Cut(string(text), heading)
	want := guide + heading + Table()
	if *update {
		if err := os.WriteFile(page, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	} else if !there || string(text) != want {
		t.Errorf("%s differs from the rows; run `go test ./farm -update`", page)
	}
	for i, block := range strings.Split(guide, "```yaml\n") {
		if i > 0 {
			file, _, _ := strings.Cut(block, "```")
			parsed(t, file)
		}
	}
}
