// Package schematest holds the tests of a file's table of keys that all such files have.
package schematest

import (
	"errors"
	"os"
	"strings"
	"testing"

	"proffer/schema"
)

// Refused plays the cases of testdata/NAME.errors on testdata/NAME.yaml. A case is a
// title (#), the text it removes from the good file (-), its replacement (+), and the
// errors (=). Without a removal, the case is a whole file. update writes the errors.
func Refused(t testing.TB, name string, update bool, parse func(data []byte) error) {
	t.Helper()
	good, path := string(Read(t, name+".yaml")), "testdata/"+name+".errors"
	var played []string
	for section := range strings.SplitSeq(strings.TrimSpace(string(Read(t, name+".errors"))), "\n\n") {
		c := parseCase(section)
		c.got = refusal(t, parse([]byte(c.apply(t, good))))
		if c.got != c.want && !update {
			t.Errorf("%s: %s\n got %s\nwant %s", path, c.title, c.got, c.want)
		}
		played = append(played, c.String())
	}
	if update {
		if err := os.WriteFile(path, []byte(strings.Join(played, "\n\n")+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// Seed adds the files of testdata/NAME.* to a fuzz test: the good files and those of all
// cases that Refused plays.
func Seed(f *testing.F, name string) {
	f.Helper()
	good := string(Read(f, name+".yaml"))
	f.Add(good)
	f.Add(string(Read(f, name+"-short.yaml")))
	for section := range strings.SplitSeq(string(Read(f, name+".errors")), "\n\n") {
		f.Add(parseCase(strings.TrimSpace(section)).apply(f, good))
	}
}

// Read is a file of testdata.
func Read(t testing.TB, name string) []byte {
	t.Helper()
	data, err := os.ReadFile("testdata/" + name)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// refusal is the text of an error, which must have a position.
func refusal(t testing.TB, err error) string {
	t.Helper()
	if err == nil {
		return "(accepted)"
	}
	var first *schema.Error
	if !errors.As(err, &first) || first.Line < 1 || first.Column < 1 {
		t.Errorf("no position in %v", err)
	}
	return err.Error()
}

type refusalCase struct{ title, remove, insert, want, got string }

func parseCase(section string) refusalCase {
	parts := map[byte][]string{}
	for line := range strings.SplitSeq(section, "\n") {
		parts[line[0]] = append(parts[line[0]], strings.TrimPrefix(line[1:], " "))
	}
	part := func(mark byte) string { return strings.Join(parts[mark], "\n") }
	return refusalCase{title: part('#'), remove: part('-'), insert: part('+'), want: part('=')}
}

func (c refusalCase) apply(t testing.TB, good string) string {
	if c.remove == "" {
		return c.insert
	}
	if strings.Count(good, c.remove) == 0 {
		t.Fatalf("%s: %q is not in the good file", c.title, c.remove)
	}
	return strings.Replace(good, c.remove, c.insert, 1)
}

func (c refusalCase) String() string {
	var b strings.Builder
	for _, part := range []struct{ mark, text string }{{"#", c.title}, {"-", c.remove}, {"+", c.insert}, {"=", c.got}} {
		if part.text == "" && part.mark != "=" {
			continue
		}
		for line := range strings.SplitSeq(part.text, "\n") {
			b.WriteString(strings.TrimRight(part.mark+" "+line, " ") + "\n")
		}
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// Positioned: each part of the error has a position in data, and is one line.
func Positioned(t testing.TB, err error, data string) {
	t.Helper()
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok {
		t.Fatalf("not a list of mistakes: %v", err)
	}
	lines := 1 + strings.Count(strings.ReplaceAll(data, "\r", "\n"), "\n")
	for _, err := range joined.Unwrap() {
		var mistake *schema.Error
		if !errors.As(err, &mistake) {
			continue // "and 7 more errors"
		}
		if mistake.Line < 1 || mistake.Line > lines || mistake.Column < 1 || mistake.Problem == "" {
			t.Fatalf("%q has no position in %d lines", mistake, lines)
		}
		if strings.ContainsAny(mistake.Key, "\n\r") {
			t.Fatalf("%q is not one line", mistake)
		}
	}
}
