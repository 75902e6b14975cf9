package proffer

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// cited is the name of a document, with the folders that stand before it.
var cited = regexp.MustCompile(`[A-Za-z0-9_./-]*[A-Za-z0-9_-]\.md\b`)

// TestCitedDocumentsExist: every document that code, help texts or documents name
// is in the tree, at that path from the root, from docs or from the file.
func TestCitedDocumentsExist(t *testing.T) {
	found := 0
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && slices.Contains([]string{".git", "build", "testdata"}, d.Name()):
			return filepath.SkipDir
		case d.IsDir() || !citing(path):
			return nil
		}
		for _, name := range cited.FindAllString(read(t, path), -1) {
			found++
			if !there(name, "docs/"+name, filepath.Join(filepath.Dir(path), name)) && !strings.HasPrefix(name, "//") {
				t.Errorf("%s cites %s, which does not exist", path, name)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if found < 50 {
		t.Errorf("only %d citations were found: most were not checked", found)
	}
}

func citing(path string) bool {
	return path == "Makefile" || strings.HasPrefix(path, ".ci/") ||
		slices.Contains([]string{".go", ".c", ".h", ".md", ".yaml", ".json", ".py", ".sh"}, filepath.Ext(path))
}

func there(paths ...string) bool {
	return slices.ContainsFunc(paths, func(path string) bool {
		_, err := os.Stat(path)
		return err == nil
	})
}
