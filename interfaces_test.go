package proffer

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"strings"
	"testing"
)

// mostMethods is how many methods of its own an interface of the product may have.
// A larger thing is put together from such interfaces.
const mostMethods = 3

func TestInterfacesAreSmall(t *testing.T) {
	found := 0
	for _, dir := range list(t, "{{.ImportPath}} {{.Dir}}") {
		pkg, dir, _ := strings.Cut(strings.TrimPrefix(dir, module), " ")
		if !isProduct(pkg) {
			continue
		}
		files, err := filepath.Glob(dir + "/*.go")
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range files {
			file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
			if err != nil {
				t.Fatal(err)
			}
			ast.Inspect(file, func(n ast.Node) bool {
				if i, ok := n.(*ast.InterfaceType); ok {
					found++
					if own := methods(i); own > mostMethods {
						t.Errorf("%s: an interface has %d methods, want at most %d", path, own, mostMethods)
					}
				}
				return true
			})
		}
	}
	if found < 5 {
		t.Fatalf("%d interfaces were found: the rule was not checked", found)
	}
}

// methods counts an interface's own methods, without those it embeds.
func methods(i *ast.InterfaceType) (own int) {
	for _, m := range i.Methods.List {
		own += len(m.Names)
	}
	return own
}
