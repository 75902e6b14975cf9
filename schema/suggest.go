package schema

import "strconv"

// suggest names the most similar key of a table, and all its keys.
func suggest(key string, keys []Entry) string {
	known := "want " + knownKeys(keys)
	if best := similar(key, keys); best != "" {
		return "did you mean " + best + "? " + known
	}
	return known
}

// similar is the most similar key of a table; none is empty.
func similar(key string, keys []Entry) string {
	names := make([]string, len(keys))
	for i, e := range keys {
		names[i] = e.Key
	}
	return Nearest(key, names)
}

// Nearest is the word that another word may be meant as; empty: none is.
func Nearest(word string, known []string) (best string) {
	least := max(1, len(word)/3)
	for _, k := range known {
		if d := Distance(word, k); d <= least {
			best, least = k, d-1
		}
	}
	return best
}

// Distance counts the insertions, deletions, substitutions and swaps of
// neighbours between two words (optimal string alignment).
func Distance(a, b string) int {
	if len(a) > 64 {
		return len(a) // no key of ours; do not spend time on it
	}
	before, last := make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := range a {
		row := make([]int, len(b)+1)
		row[0] = i + 1
		for j := range b {
			row[j+1] = min(last[j+1]+1, row[j]+1, last[j]+differ(a[i], b[j]))
			if i > 0 && j > 0 && a[i] == b[j-1] && a[i-1] == b[j] {
				row[j+1] = min(row[j+1], before[j-1]+1)
			}
		}
		before, last = last, row
	}
	return last[len(b)]
}

func differ(a, b byte) int {
	if a == b {
		return 0
	}
	return 1
}

// printable keeps a strange or endless key from ruining the error's line.
func printable(key string) string {
	if short := []rune(key); len(short) > 40 {
		key = string(short[:40]) + "…"
	}
	for _, r := range key {
		if r <= ' ' || r == '"' || !strconv.IsPrint(r) {
			return strconv.Quote(key)
		}
	}
	return key
}
