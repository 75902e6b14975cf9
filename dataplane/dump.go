package dataplane

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"

	"github.com/cilium/ebpf"

	"proffer/dataplane/objects"
)

// isFlowTable reports whether an LB or an agent pins flows under that name.
func isFlowTable(name string) bool {
	return name == "flows" || name == "conns" || strings.HasPrefix(name, "before-")
}

// DumpPinned sums up the flow tables that are pinned anywhere below dir: a hash of
// their content, except the time when each flow was last seen, and the number of
// entries. Equal hashes mean that no entry was added, changed or removed meanwhile.
// Packets of flows during the dump may change the hash.
func DumpPinned(dir string) (sha string, entries int, err error) {
	var paths []string
	err = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && isFlowTable(d.Name()) {
			paths = append(paths, path)
		}
		return err
	})
	if err != nil {
		return "", 0, fmt.Errorf("find pinned maps: %w", err)
	}
	if len(paths) == 0 {
		return "", 0, fmt.Errorf("no flow table is pinned below %s: is a daemon running, and is this its node.pin?", dir)
	}
	sum := sha256.New()
	for _, path := range paths { // in lexical order
		all, err := dump(path)
		if err != nil {
			return "", 0, fmt.Errorf("read map %s: %w", path, err)
		}
		fmt.Fprintf(sum, "%s %d\n", filepath.Base(path), len(all))
		for _, entry := range all {
			sum.Write(entry)
		}
		entries += len(all)
	}
	return hex.EncodeToString(sum.Sum(nil)), entries, nil
}

// dump returns the entries of a pinned flow table in order.
func dump(path string) ([][]byte, error) {
	m, err := ebpf.LoadPinnedMap(path, &ebpf.LoadPinOptions{ReadOnly: true})
	if err != nil {
		return nil, err
	}
	defer m.Close()
	switch {
	case m.Type() == ebpf.Array && int(m.ValueSize()) == objects.LineBytes:
		return objects.Lines(m)
	case m.Type() == ebpf.Array && int(m.ValueSize()) == binary.Size(objects.AgentConnLine{}):
		return objects.Conns(m)
	}
	return nil, errors.New("it is no flow table of this version")
}
