package proffer

import (
	"fmt"
	"strings"
	"testing"

	"proffer/wire"
)

// TestSignalsAreDocumented: the table of docs/wire.md is wire.Signals, row by row.
func TestSignalsAreDocumented(t *testing.T) {
	doc := read(t, "docs/wire.md")
	_, table, _ := strings.Cut(doc, "\n## SID\n")
	table, _, _ = strings.Cut(table, "\n## ")
	rows := 0
	for line := range strings.Lines(table) {
		if strings.HasPrefix(line, "| `") {
			rows++
		}
	}
	tag := map[bool]string{true: "yes", false: "no"}
	for _, s := range wire.Signals() {
		row := fmt.Sprintf("| `%s` %s | %s | %s | `%04x` | %s | %s |\n", s.Short, s.Name, s.From, s.At, uint16(s.Function), tag[s.Signed], s.Meaning)
		if !strings.Contains(table, row) {
			t.Errorf("docs/wire.md has no row\n%s", row)
		}
	}
	if rows != len(wire.Signals()) {
		t.Errorf("docs/wire.md has %d functions, wire has %d", rows, len(wire.Signals()))
	}
}
