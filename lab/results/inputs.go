package results

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// files are the files of packages and of all packages of the module that they import: sources, and the
// compiled eBPF objects and other files embedded there; and go.mod, which names the versions of the rest.
func files(root string, packages []string) ([]string, error) {
	out, err := command(root, "go", append([]string{"list", "-deps", "-json=Dir,Module,GoFiles,CgoFiles,SFiles,EmbedFiles"}, packages...)...)
	if err != nil {
		return nil, err
	}
	names := []string{"go.mod"}
	for decoder := json.NewDecoder(bytes.NewReader(out)); ; {
		var p struct {
			Dir                                   string
			Module                                *struct{ Main bool }
			GoFiles, CgoFiles, SFiles, EmbedFiles []string
		}
		if err := decoder.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return nil, err
		}
		if p.Module == nil || !p.Module.Main {
			continue
		}
		for _, name := range slices.Concat(p.GoFiles, p.CgoFiles, p.SFiles, p.EmbedFiles) {
			within, err := filepath.Rel(root, filepath.Join(p.Dir, name))
			if err != nil {
				return nil, err
			}
			names = append(names, within)
		}
	}
	slices.Sort(names)
	return names, nil
}

// Hash is the hash of the inputs as they are in the tree.
func Hash(root string, packages []string) (string, error) {
	names, err := files(root, packages)
	if err != nil {
		return "", err
	}
	all := sha256.New()
	for _, name := range names {
		data, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			return "", err
		}
		fmt.Fprintf(all, "%s %x\n", name, sha256.Sum256(data))
	}
	return fmt.Sprintf("%x", all.Sum(nil)), nil
}

// Stale is the reason why a result is not of the tree at root; empty: it is.
func (r *Result) Stale(root string, hash func(root string, packages []string) (string, error)) (string, error) {
	if r.Inputs.Hash == "" {
		return "stale, its packages were not recorded", nil
	}
	now, err := hash(root, r.Inputs.Packages)
	if err != nil || now == r.Inputs.Hash {
		return "", err
	}
	return "stale", nil
}

// Root is the folder of this module that a path is in.
func Root(path string) (string, error) {
	dir, err := filepath.Abs(path)
	if err != nil {
		return "", err
	}
	if dir, err = filepath.EvalSymlinks(dir); err != nil {
		return "", err
	}
	for ; ; dir = filepath.Dir(dir) {
		mod, err := os.ReadFile(filepath.Join(dir, "go.mod"))
		if err == nil && bytes.HasPrefix(mod, []byte("module proffer\n")) {
			return dir, nil
		}
		if dir == filepath.Dir(dir) {
			return "", fmt.Errorf("%s is not in a clone of Proffer: go.mod of the module proffer is in no folder above it", path)
		}
	}
}

// changed are the inputs that differ between a commit and the tree.
func changed(root, commit string, packages []string) ([]string, error) {
	names, err := files(root, packages)
	if err != nil {
		return nil, err
	}
	out, err := command(root, "git", "diff", "--name-only", commit)
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(strings.Fields(string(out)), func(name string) bool { return !slices.Contains(names, name) }), nil
}

// command is what a command prints.
func command(dir, name string, args ...string) ([]byte, error) {
	cmd := exec.Command(name, args...)
	cmd.Dir = dir
	var failure bytes.Buffer
	cmd.Stderr = &failure
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w: %s", name, args[0], err, bytes.TrimSpace(failure.Bytes()))
	}
	return out, nil
}
