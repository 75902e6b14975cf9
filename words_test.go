package proffer

import (
	"regexp"
	"strings"
	"testing"
)

// retired lists the words that ARCHITECTURE.md's glossary has others for, each with
// the word of today.
var retired = map[string]string{
	"note_hop":   "dec_hop_limit",
	"note_class": "set_class",
	"workplace":  "scratch",
	"unproven":   "embryonic",
	"embryo":     "embryonic",
	"embryos":    "embryonic",
	"hatch":      "establish",
	"hatched":    "established",
	"strays":     "displaced",
	"newcomer":   "new flow",
	"newcomers":  "new flows",
	"shm":        "page",
	"anew":       "again, or new",
	"whoever":    "the noun",
	"somebody":   "the noun",
	"anybody":    "the noun",
	"everybody":  "the noun",
	"nobody":     "no server, no packet, none",
}

// spared lists the lines that may name a retired word: the table of retired keys, and
// the user nobody of Unix.
var spared = regexp.MustCompile(`/dev/shm|Was: "shm"|is now .page|nobody is the number|const nobody|Uid: nobody|%q as nobody|proffer-nobody`)

// TestRetiredWords: a retired word comes back neither in names nor in comments, docs
// or messages.
func TestRetiredWords(t *testing.T) {
	var words, titles []string
	for word := range retired {
		words = append(words, word)
		titles = append(titles, strings.ToUpper(word[:1])+word[1:])
	}
	// A word alone or between underscores, or a part of a name in CamelCase.
	whole := regexp.MustCompile(`(?i:(?:^|[^a-z])(` + strings.Join(words, "|") + `)(?:[^a-z]|$))|(` + strings.Join(titles, "|") + `)(?:[^a-z]|$)`)
	for _, file := range tracked(t, "*.go", "*.c", "*.h", "*.md") {
		if file == "words_test.go" {
			continue
		}
		for number, line := range strings.Split(read(t, file), "\n") {
			found := whole.FindStringSubmatch(line)
			if found != nil && !spared.MatchString(line) {
				word := found[1] + found[2]
				t.Errorf("%s:%d: %q is now %q: %s", file, number+1, word, retired[strings.ToLower(word)], strings.TrimSpace(line))
			}
		}
	}
}

// longest is how many words a paragraph of the documents may have.
const longest = 150

// TestParagraphs: a paragraph of the documents ends before the reader is lost.
func TestParagraphs(t *testing.T) {
	checked := 0
	for _, file := range tracked(t, "*.md") {
		for _, p := range regexp.MustCompile(`\n\s*\n|\n(- |\||\d+\. |#)`).Split(read(t, file), -1) {
			checked++
			if n := len(strings.Fields(p)); n > longest && !strings.Contains(p, "```") {
				t.Errorf("%s: a paragraph of %d words: %.60s…", file, n, strings.TrimSpace(p))
			}
		}
	}
	if checked == 0 {
		t.Fatal("no paragraph was found")
	}
}
