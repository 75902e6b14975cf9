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

// source is a package, as `go list` has it.
type source struct {
	Dir, ImportPath                                string
	DepOnly                                        bool
	Module                                         *struct{ Main bool }
	Imports, GoFiles, CgoFiles, SFiles, EmbedFiles []string
}

// sources are the packages that are named, and all that they import; "-" before a name: but not by way of
// that package.
func sources(root string, packages []string) (all []source, err error) {
	args := []string{"list", "-deps", "-json=Dir,ImportPath,DepOnly,Module,Imports,GoFiles,CgoFiles,SFiles,EmbedFiles"}
	known, met := map[string]source{}, map[string]bool{}
	for _, name := range packages {
		if apart, is := strings.CutPrefix(name, "-./"); is {
			met["proffer/"+apart] = true
		} else {
			args = append(args, name)
		}
	}
	out, err := command(root, "go", args...)
	if err != nil {
		return nil, err
	}
	var next []string
	for decoder := json.NewDecoder(bytes.NewReader(out)); ; {
		var p source
		if err := decoder.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return nil, err
		}
		if p.Module != nil && p.Module.Main {
			known[p.ImportPath] = p
		}
		if !p.DepOnly {
			next = append(next, p.ImportPath)
		}
	}
	for ; len(next) > 0; next = next[1:] {
		if p, ours := known[next[0]]; ours && !met[next[0]] {
			met[next[0]] = true
			all, next = append(all, p), append(next, p.Imports...)
		}
	}
	return all, nil
}

// files are the files of packages and of all packages of the module that they import: sources, and the
// compiled eBPF objects and other files embedded there; and go.mod, which names the versions of the rest.
func files(root string, packages []string) ([]string, error) {
	all, err := sources(root, packages)
	if err != nil {
		return nil, err
	}
	names := []string{"go.mod"}
	for _, p := range all {
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
