package config

import "strings"

// retired lists the keys and values of earlier files. Key is empty for a key,
// for a value it is the key of today that the value goes with.
var retired = []struct{ key, was, now string }{
	{"", "signal", "load"},
	{"load", "shm", "page"},
}

// renamed returns the name of today of a retired key, or of a value of a key.
func renamed(key, was string) (now string, ok bool) {
	for _, r := range retired {
		if r.key == key && r.was == was {
			return r.now, true
		}
	}
	return "", false
}

func renamedTo(was, now string) string { return "`" + was + "` is now `" + now + "`" }

// last is the key that a cursor stands behind, without the path to it.
func (c cursor) last() string { return c.path[strings.LastIndexAny(c.path, ".]")+1:] }
