package proffer

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"proffer/wire"
)

// TestSignalsAreDocumented: the table of docs/design/wire.md is wire.Signals, row by row.
func TestSignalsAreDocumented(t *testing.T) {
	doc := read(t, "docs/design/wire.md")
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
			t.Errorf("docs/design/wire.md has no row\n%s", row)
		}
	}
	if rows != len(wire.Signals()) {
		t.Errorf("docs/design/wire.md has %d functions, wire has %d", rows, len(wire.Signals()))
	}
}

// TestFunctionsAreSpeltOnce: no Go file has the code of a function as a number in hex,
// but for wire's generated one and the judge of the programs, which shares nothing.
func TestFunctionsAreSpeltOnce(t *testing.T) {
	codes := map[int64]wire.Function{}
	for _, s := range wire.Signals() {
		codes[int64(s.Function)] = s.Function
	}
	out, err := exec.Command("git", "ls-files", "*.go").Output()
	if err != nil {
		t.Fatalf("git ls-files: %v", err)
	}
	for _, file := range strings.Fields(string(out)) {
		if strings.HasPrefix(file, "wire/") || strings.HasPrefix(file, "proof/oracle/") {
			continue
		}
		files := token.NewFileSet()
		parsed, err := parser.ParseFile(files, file, read(t, file), parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(parsed, func(n ast.Node) bool {
			number, ok := n.(*ast.BasicLit)
			if !ok || number.Kind != token.INT || !strings.HasPrefix(number.Value, "0x") {
				return true
			}
			value, err := strconv.ParseInt(number.Value, 0, 64)
			if f, spelt := codes[value]; spelt && err == nil {
				t.Errorf("%v: %s is the function %v: write wire's constant, or another base if it is something else", files.Position(number.Pos()), number.Value, f)
			}
			return true
		})
	}
}
