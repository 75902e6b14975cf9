package schema

import (
	"strings"
	"testing"
)

type host struct {
	Name  string
	Ports []int
}

// parse reads a small file into hosts.
func parse(data string, hosts *[]host) error {
	doc := &Document{File: "hosts.yaml"}
	doc.Parse([]byte(data), []Entry{Need("hosts", Sequence(hosts, 1, 1024, func(h *host) []Entry {
		return []Entry{Need("name", Name().Into(&h.Name), ""), Optional("ports", "", Whole(1, 65535).List(&h.Ports, 4), "")}
	}), "")})
	return doc.Err()
}

func refused(data string) error { return parse(data, new([]host)) }

// TestRefusesBombs holds files that grow when they are read: each must be
// refused by its size or shape, before the parser meets it.
func TestRefusesBombs(t *testing.T) {
	const deep, wide, many = "nested more than 64 deep", "more than 1024 keys in one mapping", "more than 524288 keys"
	for bomb, want := range map[string]string{
		strings.Repeat("[", 20_000):                                deep,
		strings.Repeat("{a: ", 20_000):                             deep,
		strings.Repeat("- ", 20_000):                               deep,
		strings.Repeat("? ", 20_000):                               deep,
		"a: " + strings.Repeat("&a ", 20_000):                      deep,
		"a: " + strings.Repeat("!a ", 20_000):                      deep,
		"a: &a [x]\nb: [" + strings.Repeat("*a,", 1000) + "]":      deep,
		strings.Repeat("---\n", 20_000):                            deep,
		strings.Repeat("a: b\n", 50_000):                           wide,
		"x:\n- - a: {b: c}\n" + strings.Repeat("    a: b\n", 1024): wide,
		"{" + strings.Repeat("a: b,", maxKeys+1) + "}":             many,
		strings.Repeat(" ", maxBytes+1):                            "the file has 12582913 bytes; want at most 12582912",
		"a: &a [x]\nb: &b [*a, *a]\nc: &c [*b, *b]\nd: [*c]\n":     "b: unknown key",
	} {
		if err := refused(bomb); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.20q…: got %.200v\nwant %s", bomb, err, want)
		}
	}
}

// TestManyKeysAreNoBomb when they are those of many mappings.
// TestByteOrderMark: a file may begin with one (YAML 1.2 §5.2); elsewhere it is a character.
func TestByteOrderMark(t *testing.T) {
	for text, want := range map[string]string{
		"\ufeffa: 1":       "",
		"\ufeffb: 1":       "f:1:1: b: unknown key",
		"\ufeff\ufeffa: 1": "f:1:1: a: is missing",
	} {
		var n int
		doc := &Document{File: "f"}
		doc.Parse([]byte(text), []Entry{Need("a", Whole(0, 9).Into(&n), "")})
		if err := doc.Err(); want == "" && (err != nil || n != 1) || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%q: %d, %v", text, n, err)
		}
	}
}

func TestManyKeysAreNoBomb(t *testing.T) {
	for _, element := range []string{"- a: b\n  c: d\n", "-\n  a: b\n  c: {d: e}\n", "- - a: b\n    c: d\n"} {
		err := refused("hosts:\n" + strings.Repeat(element, 2*maxBlockKeys))
		if err == nil || !strings.Contains(err.Error(), "hosts: has 2048 elements") {
			t.Errorf("%q…: got %.200v", element, err)
		}
	}
}

func TestErrorsEnd(t *testing.T) {
	err := refused(strings.Repeat("x: 1\n", 1000))
	lines := strings.Split(err.Error(), "\n")
	if len(lines) != maxErrors+1 || lines[maxErrors] != "hosts.yaml: and 981 more errors" {
		t.Errorf("%d lines, last %q", len(lines), lines[len(lines)-1])
	}
}
