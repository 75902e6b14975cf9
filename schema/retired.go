package schema

import "strings"

// Retired is a key or a value of earlier files, and its name of today. Key is empty
// for a key; for a value it is the key of today that the value goes with.
type Retired struct{ Key, Was, Now string }

// renamed returns the name of today of a retired key, or of a value of a key.
func (d *Document) renamed(key, was string) (now string, ok bool) {
	for _, r := range d.Retired {
		if r.Key == key && r.Was == was {
			return r.Now, true
		}
	}
	return "", false
}

func renamedTo(was, now string) string { return "`" + was + "` is now `" + now + "`" }

// last is the key that a cursor stands behind, without the path to it.
func (c cursor) last() string { return c.path[strings.LastIndexAny(c.path, ".]")+1:] }
